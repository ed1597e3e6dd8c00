package session

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// What the tests of the session, which use queues, see of its inside.

const (
	MaxAudited      = maxAudited
	MaxAuditedBytes = maxAuditedBytes
)

// CreateProtected creates a znode of a contender.
func (s *Session) CreateProtected(ctx context.Context, dir, prefix string, data []byte) (string, error) {
	reservation, err := s.Reserve(ctx, dir, BytesOf(dir, prefix))
	if err != nil {
		return "", err
	}
	defer reservation.End()
	a, err := createProtected(ctx, s, reservation, dir, prefix, data, s.gate.run)
	return a.Path, err
}

// Watch is StartWatch with the wait for the answer.
func (s *Session) Watch(ctx context.Context, path string) (*Watch, error) {
	p, err := s.StartWatch(ctx, path)
	if err != nil {
		return nil, err
	}
	return p.Wait(ctx)
}

// Search is the search for a create whose answer was lost.
func (s *Session) Search(ctx context.Context, dir, uuid string) error {
	_, err := (&protected{s: s, dir: dir, uuid: uuid}).search(ctx)
	return err
}

func (s *Session) HandshakePatience() time.Duration { return wireOwner{s: s}.Patience() }

// IsInUse reports whether a hold, a wait or a request needs the connection.
func (s *Session) IsInUse() bool { return wireOwner{s: s}.IsInUse() }

// Abort is the first step of Close.
func (s *Session) Abort() { s.life.beginClosing() }

// Abandon is what the end of a hold's znode means, by an event or a read.
func (s *Session) Abandon(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds.byPath[path].endAsDeletedLocked()
}

// Disprove is what an audit does with the leader's answer.
func (s *Session) Disprove(ctx context.Context, path string, err error, epoch uint64) {
	s.keeper.onCheckRefused(ctx, path, err, epoch, 0)
}

// EndTrust forgets all that proves the session.
func (s *Session) EndTrust() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.core.OnNewSession(s.clock.Now())
}

// Tables are how many entries the tables of the session have.
type Tables struct{ Holds, Nodes, Watches, Readers int }

func (s *Session) Tables() Tables {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Tables{len(s.holds.byPath), len(s.keeper.nodes), len(s.watches.byKey), s.link.states.Subscribers()}
}

// Event is the event that fired the watch.
func (w *Watch) Event() zk.EventType { return w.event }

// AskTogether sends requests together, and returns their errors.
func (s *Session) AskTogether(ctx context.Context, requests ...wire.Request) ([]error, error) {
	calls := make([]*call, len(requests))
	for i, r := range requests {
		calls[i] = &call{Request: r}
	}
	if err := s.gate.send(ctx, calls...); err != nil {
		return nil, err
	}
	errs := make([]error, len(calls))
	for i, c := range calls {
		_, errs[i] = c.wait(ctx)
	}
	return errs, nil
}

// HoldRead registers the watch of a read of path, and returns a function that sends the read. Another caller may read
// in between. The request is for the children of a directory if isList is set.
func (s *Session) HoldRead(ctx context.Context, path string, isList bool) (send func(), err error) {
	c := readCall(path)
	if isList {
		c = listCall(path)
	}
	t, err := s.gate.enter(ctx, 1, false, false)
	if err != nil {
		return nil, err
	}
	_, _, _ = s.watches.attach(c)
	return func() { s.gate.sendAdmitted(t, c) }, nil
}

// NoteLateProof is what the wire reports of a write, sent at a time in the session with an id, that was committed on an abandoned connection.
func (s *Session) NoteLateProof(id int64, sentAt time.Time) {
	wireOwner{s: s}.OnLateProof(wire.SentWrite{At: sentAt, ID: id, Line: s.wire.Line()})
}
