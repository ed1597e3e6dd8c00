package track

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/dial"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// Start follows the configuration until the session closes. The channel is closed once the configuration was first read or refused.
func Start(s *session.Session) (hasRead <-chan struct{}) {
	first := make(chan struct{})
	f := &follower{s: s, tracker: s.Wire().Dialer.Track(), noteRead: sync.OnceFunc(func() { close(first) })}
	if !s.Background(f.follow) {
		f.noteRead()
	}
	return first
}

// follower follows the configuration for one session, in one goroutine. Its watch is not released, because it fires, or ends with the session.
type follower struct {
	s        *session.Session
	tracker  *dial.Tracker
	noteRead func()
	leftAt   time.Time // when the session last left a server; zero: never
}

func (f *follower) follow(ctx context.Context) {
	defer f.noteRead()
	s := f.s
	ctx, cancel := s.WhileOpen(ctx)
	defer cancel()
	failures := s.Config().Retry.Patient().Pace()
	for {
		epoch := s.Snapshot().Epoch
		node, w, err := s.ReadAndWatch(ctx, dial.ConfigPath)
		switch {
		case ctx.Err() != nil:
			return
		case zkutil.IsRefused(err):
			f.warn(f.tracker.Refused(err))
			f.noteRead()
			f.awaitConnectionAfter(ctx, epoch)
		case err != nil:
			pause, _ := failures.Next()
			zkutil.Pause(ctx, pause)
		default:
			failures.Reset()
			changed, err := f.tracker.Apply(node.Data, s.Snapshot().ID) //nolint:contextcheck // lookups of names outlive the follower
			f.warn(err)
			if changed != nil {
				s.Log(slog.LevelInfo, "ensemble changed", "servers", strings.Join(changed, ","))
			}
			f.noteRead()
			f.awaitChange(ctx, w)
		}
	}
}

// warn logs why the configuration is not followed, unless why is nil.
func (f *follower) warn(why error) {
	if why != nil {
		f.s.Log(slog.LevelWarn, "ensemble not tracked", "err", why)
	}
}

// awaitConnectionAfter blocks until a later connection than that of epoch, or until ctx ends.
func (f *follower) awaitConnectionAfter(ctx context.Context, epoch uint64) {
	for ctx.Err() == nil {
		now := f.s.Snapshot()
		if now.Epoch != epoch {
			return
		}
		select {
		case <-now.Changed:
		case <-ctx.Done():
		}
	}
}

// awaitChange blocks until the configuration may have changed. Meanwhile it leaves a server that is no longer a member.
func (f *follower) awaitChange(ctx context.Context, w *session.Watch) {
	isLogged := false
	for {
		var retry <-chan time.Time
		if pause := f.leaveFormerMember(&isLogged); pause > 0 {
			retry = time.After(pause)
		}
		select {
		case <-w.Fired():
			return
		case <-ctx.Done():
			return
		case <-retry:
		}
	}
}

// leaveFormerMember leaves the server if it is no longer a member. If that has to wait, leaveFormerMember returns for how long.
// isLogged is set once the log says that no member is reachable.
func (f *follower) leaveFormerMember(isLogged *bool) (pause time.Duration) {
	s := f.s
	line := s.Wire().Line()
	if line == nil || !line.HasLeft() {
		return 0
	}
	if pause := s.Timeout() - time.Since(f.leftAt); !f.leftAt.IsZero() && pause > 0 {
		return pause
	}
	if s.Wire().Dialer.ReachMember() {
		s.Log(slog.LevelInfo, "leaving a server that is no longer in the ensemble", "server", line.Server)
		f.leftAt = time.Now()
		line.Leave()
		return 0
	}
	if !*isLogged {
		*isLogged = true
		s.Log(slog.LevelWarn, "server is no longer in the ensemble, and no member is reachable", "server", line.Server, "members", strings.Join(f.tracker.Members(), ","))
	}
	return s.BeatPeriod()
}
