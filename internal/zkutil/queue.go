package zkutil

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

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
// own alone, and must not change the queue.
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
	Behind  func() // if set: called when an attempt finds somebody ahead; must not block
}

// Acquire waits for its turn and returns the hold, entered once. Whatever error it
// returns, its znode is gone or being deleted.
func (q *Queue) Acquire(ctx context.Context) (*Entry, error) { return q.acquire(ctx, true) }

// TryAcquire returns ErrNotAcquired instead of waiting, and its znode is gone by then.
func (q *Queue) TryAcquire(ctx context.Context) (*Entry, error) { return q.acquire(ctx, false) }

func (q *Queue) acquire(ctx context.Context, wait bool) (*Entry, error) {
	ctx, cancel := q.Session.whileOpen(ctx)
	defer cancel()
	defer q.Session.attended()()
	policy := q.Session.cfg.Retry
	policy.MaxElapsed = 0 // the time in the queue is no failure
	lost := func(err error) bool { return errors.Is(err, errPlaceLost) }
	return retry(ctx, policy, lost, func() (*Entry, error) { return q.attempt(ctx, wait) })
}

// attempt takes one place, and waits for its turn there.
func (q *Queue) attempt(ctx context.Context, wait bool) (*Entry, error) {
	var p *place
	if err := q.Session.apart(ctx, func() (err error) {
		p, err = q.join(ctx)
		return err
	}); err != nil {
		return nil, err
	}
	entry, err := p.turn(ctx, wait)
	if err != nil {
		p.withdraw(ctx, err)
	}
	return entry, err
}

// join takes the place at the tail.
func (q *Queue) join(ctx context.Context) (*place, error) {
	s := q.Session
	data := q.Data
	if data == nil {
		data = []byte(s.hostAddress())
	}
	path, err := s.createProtected(ctx, q.Dir, q.Prefix, data)
	if err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	_, name := split(path)
	sequence, _ := sequenceOf(name, q.Markers)
	p := &place{q: q, s: s, path: path, self: Contender{name, sequence}}
	exhausted, worn := wornOut(sequence)
	if worn {
		s.log(slog.LevelWarn, "sequence numbers are running out: let the parent be removed while nobody uses it", "path", q.Dir, "znode", path)
	}
	if exhausted {
		leaves(ctx, s.remove(path).done)
		return nil, ErrSequenceExhausted
	}
	return p, nil
}

// Participant is a contender with what it wrote into its znode.
type Participant struct {
	Path string
	Data []byte
}

// concurrentReads bounds the reads that Participants has in flight.
const concurrentReads = 16

// Participants returns the contenders in queue order. Those that leave meanwhile
// are left out; a missing directory has none.
func (q *Queue) Participants(ctx context.Context) ([]Participant, error) {
	s := q.Session
	ctx, cancel := s.whileOpen(ctx)
	defer cancel()
	queue, err := retry(ctx, s.cfg.Retry, transient, func() ([]Contender, error) { return q.list(ctx) })
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
			n, err := retry(ctx, s.cfg.Retry, transient, func() (node, error) {
				return do(ctx, s, request[node]{run: get(path)})
			})
			if err == nil {
				found[i] = &Participant{Path: path, Data: n.data}
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
	_, err := retry(ctx, s.cfg.Retry, transient, func() (struct{}, error) {
		return do(ctx, s, request[struct{}]{write: true, run: func(conn *zk.Conn) (struct{}, error) {
			_, err := conn.Set(path, []byte(Revocation), -1)
			return struct{}{}, err
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
