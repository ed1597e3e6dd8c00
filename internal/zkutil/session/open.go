package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// entrance holds the requests of a session that was opened without a server until the first server has accepted
// the credentials. Without credentials the first handshake suffices. Guarded by Session.mu.
type entrance struct {
	isOpened bool  // by Open, whose caller waits for no server
	isDue    bool  // the credentials were not accepted yet
	failure  error // of the latest attempt to present the credentials
}

// loginKey marks the context of the requests that present the credentials.
type loginKey struct{}

// admitsLocked reports whether a request may be sent once a server is connected. isLogin marks the requests that present the
// credentials.
func (e *entrance) admitsLocked(isLogin bool) bool {
	return !e.isDue || isLogin
}

// whyUnavailableLocked is why requests are held back.
func (e *entrance) whyUnavailableLocked(link *link) error {
	failure := e.failure
	if failure == nil || !link.isConnected && link.failure != nil {
		failure = link.failure
	}
	if failure == nil {
		return zkutil.ErrUnavailable
	}
	return fmt.Errorf("%w: %w", zkutil.ErrUnavailable, connectionError{failure})
}

// Open opens a session, and returns before any server is reached. ctx bounds the Init of the user's host provider. The
// session is Suspended until the first handshake. If no server has accepted the session and the credentials
// after patience, the log has a record.
func Open(ctx context.Context, cfg Config, patience time.Duration) (*Session, error) {
	s := newSession(cfg, true)
	s.gate.entry = entrance{isOpened: true, isDue: len(cfg.Auth) > 0}
	s, err := start(ctx, context.WithoutCancel(ctx), s)
	if err != nil {
		return nil, err
	}
	s.Background(s.gate.logIn)
	s.Background(func(ctx context.Context) { s.link.warnWithoutServer(ctx, patience) })
	return s, nil
}

// isOpened reports whether the session was opened by Open.
func (g *gate) isOpened() bool {
	s := g.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return g.entry.isOpened
}

// logIn presents the credentials as soon as a server is connected, and goes on until a server has accepted each. The
// pauses after a refusal are longer, because a refusal lasts until somebody acts.
func (g *gate) logIn(ctx context.Context) {
	s := g.s
	ctx = context.WithValue(ctx, loginKey{}, true)
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
			s.Log(slog.LevelError, "the server refuses the credentials", "server", s.report.server, "err", err)
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
		return errUnanswered
	}
	return err
}

// warnWithoutServer writes to the log that no server has been reached after patience.
func (l *link) warnWithoutServer(ctx context.Context, patience time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := l.awaitCondition(ctx, func() bool { return l.epoch > 0 || l.hopeless != nil })
	if errors.Is(err, context.DeadlineExceeded) {
		l.s.Log(slog.LevelWarn, "no server reached yet", "after", patience, "err", l.whyNotConnected())
	}
}

// tellHopelessLocked writes to the log that every server refuses the client for a reason that persists. A caller of Connect
// gets an error instead.
func (l *link) tellHopelessLocked(err error) {
	if l.s.gate.entry.isOpened || l.epoch > 0 {
		l.s.Log(slog.LevelError, "every server refuses the client", "err", err)
	}
}

// noteHopelessLocked notes whether all servers refuse the client for a reason that persists.
func (l *link) noteHopelessLocked(isHopeless bool) {
	switch {
	case !isHopeless:
		l.hopelessAt = time.Time{}
	case l.hopelessAt.IsZero():
		l.hopelessAt = time.Now()
	}
}

// maxRefusedPause is the longest pause between two rounds while all servers refuse the client for a reason that persists.
const maxRefusedPause = 10 * time.Second

// pauseAfterRefusals is the pause between two rounds while all servers refuse the client, as long as they have done so,
// because a server that refuses a login has made a session before. It is 0 while no server does so, or a hold can be saved.
func (l *link) pauseAfterRefusals() time.Duration {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.hopelessAt.IsZero() || s.holds.hasOneToSaveLocked() {
		return 0
	}
	return min(max(time.Since(l.hopelessAt), time.Second), maxRefusedPause)
}
