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
	MaxShortTasks   = maxShortTasks
)

// Ask runs a request of the session's.
func (s *Session) Ask(ctx context.Context, r wire.Request) (wire.Answer, error) {
	return s.gate.run(ctx, &call{Request: r})
}

// CreateProtected creates a znode of a contender.
func (s *Session) CreateProtected(ctx context.Context, dir, prefix string, data []byte) (string, error) {
	place, err := s.Reserve(ctx, dir, BytesOf(dir, prefix))
	if err != nil {
		return "", err
	}
	defer place.End()
	a, err := createProtected(ctx, s, place, dir, prefix, data, s.gate.run)
	return a.Path, err
}

// Search is the search for a create whose answer was lost.
func (s *Session) Search(ctx context.Context, dir, uuid string) error {
	_, err := (&protected{s: s, dir: dir, uuid: uuid}).search(ctx, false)
	return err
}

func (s *Session) HandshakePatience() time.Duration { return wireOwner{s: s}.Patience() }

// Abort is the first step of Close.
func (s *Session) Abort() { s.life.beginClosing() }

// LeaveSlot is what a short task does before it pauses.
func (s *Session) LeaveSlot(ctx context.Context) { s.shortTasks.leaveSlot(ctx) }

// Abandon is what the end of a hold's znode means, by an event or a read.
func (s *Session) Abandon(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holds.byPath[path].endAsDeletedLocked()
}

// Disprove is what an audit does when the leader has answered.
func (s *Session) Disprove(ctx context.Context, path string, err error, epoch uint64) {
	s.keeper.onCheckRefused(ctx, path, err, epoch, 0)
}

// EndTrust forgets all that proves the session.
func (s *Session) EndTrust() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ledger.OnNewSession(s.clock.Now())
}

// Tables are how many entries the tables of the session have.
type Tables struct{ Holds, Nodes, Watches, Readers int }

func (s *Session) Tables() Tables {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Tables{len(s.holds.byPath), len(s.keeper.nodes), len(s.watches.byKey), len(s.link.readers)}
}

// Event is what has fired the watch.
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

// HoldRead registers the watch of a read of path, and returns a function that sends the read. Another caller may come
// in between. The request is for the children of a directory if isList is set.
func (s *Session) HoldRead(ctx context.Context, path string, isList bool) (send func(), err error) {
	c := readCall(path)
	if isList {
		c = listCall(path)
	}
	t, err := s.gate.enter(ctx, 1, false)
	if err != nil {
		return nil, err
	}
	_, _ = s.watches.attach(c)
	return func() { s.gate.sendAdmitted(t, c) }, nil
}

// ReadAndWatch reads a znode, and watches it from that read on.
func (s *Session) ReadAndWatch(ctx context.Context, path string) (Node, *Watch, error) {
	return s.watches.readAndWatch(ctx, path)
}
