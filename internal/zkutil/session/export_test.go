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

// Ask runs a request of the session's.
func (s *Session) Ask(ctx context.Context, r wire.Request) (wire.Answer, error) {
	return s.run(ctx, &call{Request: r})
}

// CreateProtected creates a znode of a contender.
func (s *Session) CreateProtected(ctx context.Context, dir, prefix string, data []byte) (string, error) {
	place, err := s.AwaitPlace(ctx, dir, BytesOf(dir, prefix))
	if err != nil {
		return "", err
	}
	defer place.End()
	a, err := s.createProtected(ctx, place, dir, prefix, data, s.run)
	return a.Path, err
}

// Search is the search for a create whose answer was lost.
func (s *Session) Search(ctx context.Context, dir, uuid string) error {
	_, err := s.searchProtected(ctx, dir, uuid, false)
	return err
}

func (s *Session) HandshakePatience() time.Duration { return s.handshakePatience() }

// Abort is the first step of Close.
func (s *Session) Abort() { s.beginClosing() }

// Disprove is what an audit does when the leader has answered.
func (s *Session) Disprove(ctx context.Context, path string, err error, epoch uint64) {
	s.onCheckRefused(ctx, path, err, epoch)
}

// EndTrust makes as if the time of trust had passed in a pause of the process.
func (s *Session) EndTrust() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live.trust.until = time.Now().Add(-time.Nanosecond)
}

// Tables are how many entries the tables of the session have.
type Tables struct{ Holds, Nodes, Watches, Readers int }

func (s *Session) Tables() Tables {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Tables{len(s.holds), len(s.live.nodes), len(s.watches), len(s.readers)}
}

// Event is what has fired the watch.
func (w *Watch) Event() zk.EventType { return w.event }

// AskTogether sends requests together, and returns their errors.
func (s *Session) AskTogether(ctx context.Context, requests ...wire.Request) ([]error, error) {
	calls := make([]*call, len(requests))
	for i, r := range requests {
		calls[i] = &call{Request: r}
	}
	if err := s.send(ctx, calls...); err != nil {
		return nil, err
	}
	errs := make([]error, len(calls))
	for i, c := range calls {
		_, errs[i] = c.wait(ctx)
	}
	return errs, nil
}

// Budget is what the ephemeral znodes of the session cost, and who waits for a place.
type Budget struct{ Used, Rooms, Nodes, Waiters int }

func (s *Session) Budget() Budget {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	use := Budget{b.used, len(b.rooms), len(b.nodes), 0}
	for _, r := range b.rooms {
		use.Waiters += r.waiters.Len()
	}
	return use
}
