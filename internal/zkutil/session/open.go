package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/dial"
)

// entrance holds the requests of a session that was opened without a server until the first server accepts
// the credentials. Without credentials the first handshake suffices.
type entrance struct {
	isOpened bool // by Open, whose caller waits for no server; never changes

	// Guarded by Session.mu.
	isDue   bool  // the credentials were not accepted yet
	failure error // of the latest attempt to present the credentials
}

// whyUnavailableLocked is why requests are held back.
func (e *entrance) whyUnavailableLocked(s *Session) error {
	failure := e.failure
	if failure == nil || !s.core.IsConnected && s.link.failure != nil {
		failure = s.link.failure
	}
	if failure == nil {
		return zkutil.ErrUnavailable
	}
	return fmt.Errorf("%w: %w", zkutil.ErrUnavailable, connectionError{failure})
}

// AwaitReady waits until the session is connected and its credentials are accepted.
func (s *Session) AwaitReady(ctx context.Context) error {
	return s.link.awaitCondition(ctx, func() bool { return s.core.IsConnected && !s.gate.entry.isDue })
}

// logIn presents the credentials as soon as a server is connected, and continues until a server accepts each of them. The
// pauses after a refusal are longer, because a refusal lasts until an operator acts.
func (g *gate) logIn(ctx context.Context) {
	s := g.s
	refused, failed := s.cfg.Retry.Patient().AfterRefusals().Pace(), s.cfg.Retry.Patient().Pace()
	for _, auth := range s.cfg.Auth {
		for err := g.presentFirst(ctx, auth); err != nil; err = g.presentFirst(ctx, auth) {
			if errors.Is(err, zkutil.ErrClosed) {
				return
			}
			pace := failed
			if zkutil.IsRefused(err) {
				pace = refused
			}
			pause, _ := pace.Next()
			s.pause(ctx, pause)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	g.entry.isDue, g.entry.failure = false, nil
	s.link.announceLocked()
}

// presentFirst presents a credential for the first time, once a server is connected. The first refusal of a series is logged.
func (g *gate) presentFirst(ctx context.Context, auth Auth) error {
	s := g.s
	if err := s.AwaitConnected(ctx); err != nil {
		return err
	}
	err := g.addAuthWithin(ctx, auth)
	if err != nil {
		err = fmt.Errorf("authenticate with scheme %q: %w", auth.Scheme, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if zkutil.IsRefused(err) {
		if g.entry.failure == nil {
			s.log.Log(slog.LevelError, "the server refuses the credentials", "server", s.report.server, "err", err)
		}
		g.entry.failure, s.report.failure = err, err
	}
	return err
}

// addAuthWithin is addAuth within an operation timeout. Then the server is left, because zk.Conn waits for a lost answer as long as the
// server answers pings.
func (g *gate) addAuthWithin(ctx context.Context, auth Auth) error {
	s := g.s
	bounded, cancel := context.WithTimeout(ctx, s.cfg.OperationTimeout)
	defer cancel()
	err := g.addAuth(bounded, auth)
	if errors.Is(err, context.DeadlineExceeded) && s.IsConnected() {
		s.wire.Disconnect()
	}
	return err
}

// warnWithoutServer writes to the log that a new session reached no server within its first second, so that the log of a service that is just
// starting is not empty.
func (l *link) warnWithoutServer(ctx context.Context) {
	const patience = time.Second
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := l.awaitCondition(ctx, func() bool { return l.s.core.Epoch > 0 || l.hopeless != nil })
	if errors.Is(err, context.DeadlineExceeded) {
		l.s.log.Log(slog.LevelWarn, "no server reached yet", "after", patience, "err", l.whyNotConnected())
	}
}

// tellHopelessLocked writes to the log that every server refuses the client for a reason that persists. A caller of Connect
// gets an error instead.
func (l *link) tellHopelessLocked(err error) {
	if l.s.gate.entry.isOpened || l.s.core.Epoch > 0 {
		l.s.log.Log(slog.LevelError, "every server refuses the client", "err", err)
	}
}

// noteRefusalLocked notes since when all servers refuse the client for a reason that persists.
func (l *link) noteRefusalLocked(refusal dial.Refusal) {
	switch {
	case refusal == dial.NoRefusal:
		l.refusedAt, l.isGuessTold = time.Time{}, false
	case l.refusedAt.IsZero():
		l.refusedAt = time.Now()
	}
}

// guessedRefusal is for how long all servers have to refuse the client, some by no more than hang-ups, before the log says so: servers that
// start hang up as well.
const guessedRefusal = 15 * time.Second

// maxRefusedPause is the longest pause between two rounds while all servers refuse the client for a reason that persists.
const maxRefusedPause = 10 * time.Second

// pauseAfterRefusals is the pause between two rounds while all servers refuse the client, as long as they have done so,
// because a server creates a session before it refuses a login. It is 0 while no server does so, or a hold can be saved.
func (l *link) pauseAfterRefusals() time.Duration {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.refusedAt.IsZero() || s.core.HasHoldToSave(s.clock.Now()) {
		return 0
	}
	return min(max(time.Since(l.refusedAt), time.Second), maxRefusedPause)
}
