package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// Participant is a contender with the content of its znode. If the client may not read the znode, the Participant has only the
// path and the facts that the server shows without the right to read.
type Participant struct {
	Path       string
	Data       []byte
	Token      int64     // czxid
	Priority   int       // in the name; 0 without one
	Created    time.Time // by the clock of the server that led the ensemble at the creation
	IsAdmitted bool      // the queue shows no contender to wait for. Set by Participants alone
	IsLasting  bool      // the znode is not ephemeral, and exists until a client deletes it
}

// ParticipantOf returns the contender at path, given the content of its znode.
func ParticipantOf(path string, n session.Node) Participant {
	p := Participant{Path: path, Data: idOf(n.Data), Token: n.Stat.Czxid}
	_, name := zkutil.Split(path)
	p.Priority, _ = PriorityOf(name)
	if n.Stat.Czxid != 0 {
		p.Created, p.IsLasting = time.UnixMilli(n.Stat.Ctime), n.Stat.EphemeralOwner == 0
	}
	return p
}

// lasting returns ErrNotEphemeral with the path of a znode that is not ephemeral, and nil for any other znode.
func (p Participant) lasting() error {
	if !p.IsLasting {
		return nil
	}
	return fmt.Errorf("%w: %s", zkutil.ErrNotEphemeral, zkutil.Printable(p.Path))
}

// maxReads bounds the reads that Participants has in flight.
const maxReads = 16

// Participants returns the contenders in queue order; with ShowOwn, only contenders with the queue's own prefix. A contender that
// leaves during the call is left out. For a missing directory the result is empty.
func (q *Queue) Participants(ctx context.Context) ([]Participant, error) {
	ctx, cancel := q.Session.WhileOpen(ctx)
	defer cancel()
	queue, err := session.Repeat(ctx, q.Session, func() ([]Contender, error) { return q.ListContenders(ctx) })
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	found := make([]Participant, len(queue)) // without a path if the contender left
	failures := make([]error, len(queue))
	slots := make(chan struct{}, maxReads)
	var readers sync.WaitGroup
	for i, contender := range queue {
		if !q.isShown(contender) {
			continue
		}
		slots <- struct{}{}
		readers.Go(func() { // ends with its read; joined below
			defer func() { <-slots }()
			found[i], failures[i] = q.readParticipant(ctx, contender)
		})
	}
	readers.Wait()
	return q.admitted(queue, found), cmp.Or(failures...) // one of them, because mostly all are the same
}

func (q *Queue) isShown(c Contender) bool { return !q.ShowOwn || c.HasMarker(q.Prefix) }

// admitted returns the participants that still exist, and marks those that the rule admits. found[i] was read from queue[i],
// unless queue[i] is not shown.
func (q *Queue) admitted(queue []Contender, found []Participant) []Participant {
	var present []Contender
	var shown []Participant
	for i, contender := range queue {
		if !q.isShown(contender) {
			present = append(present, contender)
		} else if p := found[i]; p.Path != "" {
			present = append(present, contender)
			p.IsAdmitted = q.Rule(present, len(present)-1) < 0
			shown = append(shown, p)
		}
	}
	return shown
}

// readParticipant returns the zero Participant, and no error, for a contender that no longer exists.
func (q *Queue) readParticipant(ctx context.Context, contender Contender) (Participant, error) {
	path := zkutil.Join(q.Dir, contender.Name)
	n, err := session.Repeat(ctx, q.Session, func() (session.Node, error) { return q.Session.ReadPeer(ctx, path) })
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return Participant{}, nil
	case err != nil:
		return Participant{}, err
	default:
		return ParticipantOf(path, n), nil
	}
}
