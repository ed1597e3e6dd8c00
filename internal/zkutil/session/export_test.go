package session

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"
)

// What the tests of the session, which use queues, see of its inside.

const (
	MaxAudited      = maxAudited
	MaxAuditedBytes = maxAuditedBytes
)

// Ask runs a request of the session's.
func Ask[T any](ctx context.Context, s *Session, isWrite bool, run func(conn *zk.Conn) (T, error)) (T, error) {
	return runRequest(ctx, s, request[T]{isWrite: isWrite, run: run})
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
