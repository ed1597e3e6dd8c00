package zkutil

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// Revocation is what a peer writes into a contender's znode to ask for the lease:
// the same ten bytes as Curator's.
const Revocation = "__REVOKE__"

// Markers stand before the sequence number in the names of contenders: ours and
// Curator's locks (zk.Lock's too), Curator's LeaderLatch, kazoo's locks.
var Markers = []string{"lock-", "latch-", "__lock__"} //nolint:gochecknoglobals // a constant list

// Rule says whom the contender at index own of a queue waits for: the index of the
// one to watch, or −1 when it may proceed. It may depend on the contenders before
// own alone, and must not change the queue. Once it lets own proceed it goes on doing so as
// contenders before own leave: place.grantProven relies on that.
type Rule func(queue []Contender, own int) int

// Exclusive is the rule of a mutex: everyone waits for the one ahead.
func Exclusive(_ []Contender, own int) int { return own - 1 }

// Queue is a queue of ephemeral-sequential znodes, in the order in which the server
// numbered them. It is immutable and safe for concurrent use. After Curator's
// LockInternals and ZooKeeper's lock recipe.
type Queue struct {
	Session *Session
	Recipe  string   // with Session and Dir the identity that a context carries
	Dir     string   // absolute path of the parent, namespace included
	Prefix  string   // of our children, after the uuid
	Markers []string // what stands before a contender's number
	Data    []byte   // of our znodes; nil: the host's address
	Rule    Rule
	Keep    bool   // a hold's znode stays when the hold ends, until Candidate.Vacate
	Behind  func() // if set: called when an attempt watches somebody ahead; must not block

	// OnJoined, if set, is called with the path of an attempt's znode, and with "" when an attempt
	// gives it up. It must not block.
	OnJoined func(path string)
	// OnUnseen, if set, is called when the server refuses to show an observer who leads, once
	// for each refusal that is not the one before. It must not block.
	OnUnseen func(err error)
}

// ID is what contenders of this queue write into their znodes.
func (q *Queue) ID() string {
	if q.Data == nil {
		return q.Session.hostAddress()
	}
	return string(q.Data)
}

func (q *Queue) key() holdKey { return holdKey{q.Session, q.Dir, q.Recipe} }

// Acquire waits for its turn and returns the hold, entered once. Whatever error it
// returns, its znode is gone or being deleted. When ctx ends first the error is a WaitError.
func (q *Queue) Acquire(ctx context.Context) (*Entry, error) { return q.acquire(ctx, true) }

// TryAcquire returns ErrNotAcquired instead of waiting, and its znode is gone by then. When ctx
// ends first the error is a WaitError as well.
func (q *Queue) TryAcquire(ctx context.Context) (*Entry, error) { return q.acquire(ctx, false) }

func (q *Queue) acquire(ctx context.Context, wait bool) (*Entry, error) {
	caller, began := ctx, time.Now()
	ctx, cancel := q.Session.whileOpen(ctx)
	defer cancel()
	defer q.Session.attended()()
	policy := q.Session.cfg.Retry
	policy.MaxElapsed = 0 // the time in the queue is no failure
	lost := func(err error) bool { return errors.Is(err, errPlaceLost) }
	var last Standing
	entry, err := retry(ctx, policy, lost, func() (*Entry, error) { return q.attemptNoting(ctx, wait, &last) })
	if err != nil && caller.Err() != nil && errors.Is(err, caller.Err()) {
		err = &WaitError{last, time.Since(began), err}
	}
	return entry, err
}

// attempt takes one place, and waits for its turn there.
func (q *Queue) attempt(ctx context.Context, wait bool) (*Entry, error) {
	return q.attemptNoting(ctx, wait, nil)
}

// attemptNoting is attempt; last, unless nil, is what its latest look has shown.
func (q *Queue) attemptNoting(ctx context.Context, wait bool, last *Standing) (*Entry, error) {
	var p *place
	if err := q.Session.apart(ctx, func() (err error) {
		p, err = q.join(ctx)
		return err
	}); err != nil {
		return nil, err
	}
	p.standing = last
	return p.stand(ctx, wait)
}

// stand waits for the turn of a place, and withdraws where it fails.
func (p *place) stand(ctx context.Context, wait bool) (*Entry, error) {
	p.q.joined(p.path)
	entry, err := p.turn(ctx, wait)
	if err != nil {
		p.q.joined("")
		p.withdraw(ctx, err)
	}
	return entry, err
}

func (q *Queue) joined(path string) {
	if q.OnJoined != nil {
		q.OnJoined(path)
	}
}

// join takes the place at the tail.
func (q *Queue) join(ctx context.Context) (*place, error) {
	s := q.Session
	path, err := s.createProtected(ctx, q.Dir, q.Prefix, []byte(q.ID()))
	if err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	p := q.placeOf(path)
	exhausted, worn := wornOut(p.self.sequence)
	if worn {
		s.log(slog.LevelWarn, "sequence numbers are running out: let the parent be removed while nobody uses it", "path", q.Dir, "znode", path)
	}
	if exhausted {
		leaves(ctx, s.remove(path).done)
		return nil, ErrSequenceExhausted
	}
	return p, nil
}

// placeOf is the place that a znode of ours has, before the first look at it.
func (q *Queue) placeOf(path string) *place {
	_, name := split(path)
	sequence, _ := sequenceOf(name, q.Markers)
	return &place{q: q, s: q.Session, path: path, self: Contender{name, sequence}}
}

// Participant is a contender with what its znode says. Of a znode that may not be read it has
// the path, and the rest as far as the server tells it.
type Participant struct {
	Path    string
	Data    []byte
	Token   int64     // czxid
	Created time.Time // by the clock of the server that led then
}

func participantOf(path string, n node) Participant {
	p := Participant{Path: path, Data: n.data, Token: n.stat.Czxid}
	if n.stat.Czxid != 0 {
		p.Created = time.UnixMilli(n.stat.Ctime)
	}
	return p
}

// concurrentReads bounds the reads that Participants has in flight.
const concurrentReads = 16

// Participants returns the contenders in queue order. Those that leave meanwhile
// are left out; a missing directory has none.
func (q *Queue) Participants(ctx context.Context) ([]Participant, error) {
	s := q.Session
	ctx, cancel := s.whileOpen(ctx)
	defer cancel()
	queue, err := retry(ctx, s.cfg.Retry, s.judge(ctx), func() ([]Contender, error) { return q.list(ctx) })
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := make([]*Participant, len(queue))
	failures := make([]error, len(queue))
	slots := make(chan struct{}, concurrentReads)
	var readers sync.WaitGroup
	for i, contender := range queue {
		slots <- struct{}{}
		readers.Go(func() { // ends with its read; joined below
			defer func() { <-slots }()
			path := Join(q.Dir, contender.Name)
			n, err := retry(ctx, s.cfg.Retry, s.judge(ctx), func() (node, error) { return s.readPeer(ctx, path) })
			if err == nil {
				participant := participantOf(path, n)
				found[i] = &participant
			} else if !errors.Is(err, zk.ErrNoNode) {
				failures[i] = err
			}
		})
	}
	readers.Wait()
	participants := make([]Participant, 0, len(found))
	for _, participant := range found {
		if participant != nil {
			participants = append(participants, *participant)
		}
	}
	return participants, errors.Join(slices.DeleteFunc(failures, func(err error) bool { return err == nil })...)
}

// Revoke asks the contender at path to give its lease up. A znode that is gone
// needs no asking.
func (s *Session) Revoke(ctx context.Context, path string) error {
	if _, name := split(path); name == "" || !isContender(name) {
		return Invalid(fmt.Errorf("%w %q: not the znode of a contender", ErrInvalidPath, path))
	}
	ctx, cancel := s.whileOpen(ctx)
	defer cancel()
	_, err := retry(ctx, s.cfg.Retry, s.judge(ctx), func() (struct{}, error) {
		return do(ctx, s, request[struct{}]{write: true, run: func(conn *zk.Conn) (struct{}, error) {
			_, err := conn.Set(path, []byte(Revocation), -1)
			return struct{}{}, denied(err, "write", path)
		}})
	})
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	return err
}

func isContender(name string) bool {
	_, ok := sequenceOf(name, Markers)
	return ok
}
