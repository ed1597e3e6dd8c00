package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/dial"
)

// A session that tracks its ensemble reads the configuration, which the servers keep in a znode, on each connection, and
// watches the znode. The servers to try follow the configuration from then on:
//
//   - A server that joins is tried like any other from the next attempt on. The connection stays.
//   - A server that leaves is not tried any more. If the session is connected to that server, the session first makes sure
//     that a member takes connections, and then reconnects: the session goes on, and with it its holds. A server that has left
//     serves until somebody stops it, so nothing presses.
//   - A configuration that can't be used is told once, and nothing changes.
//   - A configuration older than the latest is of a server that lags behind, and is ignored, unless the session is another one:
//     servers that were restored count from the beginning.

// configPath is the znode of the configuration (ZooDefs.CONFIG_NODE).
const configPath = "/zookeeper/config"

// tracker is what a session knows of its ensemble. It belongs to one goroutine.
type tracker struct {
	s         *Session
	sessionID int64 // in which the configuration was read
	members   dial.Members
	told      string // why the configuration could not be used; "": it could
}

// track follows the configuration until the session closes.
func (l *link) track(ctx context.Context) {
	s := l.s
	t := &tracker{s: s}
	failures := s.cfg.Retry.Patient().Pace()
	first := sync.OnceFunc(func() { close(l.tracked) })
	defer first()
	for {
		epoch := s.Snapshot().Epoch
		node, w, err := s.watches.readAndWatch(ctx, configPath)
		switch {
		case errors.Is(err, zkutil.ErrClosed) || ctx.Err() != nil:
			return
		case zkutil.IsRefused(err):
			t.tell(refusedConfig(err))
			first()
			if s.link.awaitCondition(ctx, func() bool { return s.link.epoch != epoch }) != nil {
				return
			}
		case err != nil:
			pause, _ := failures.Next()
			s.pause(ctx, pause)
		default:
			failures.Reset()
			t.apply(node.Data) //nolint:contextcheck // lookups of names outlive the tracker
			first()
			t.awaitChange(ctx, w)
			s.ReleaseWatch(w)
		}
	}
}

// awaitTracked blocks until the configuration was first read, or refused, so that the first loss of the connection finds the other
// servers.
func (l *link) awaitTracked(ctx context.Context) {
	if l.tracked == nil {
		return
	}
	select {
	case <-l.tracked:
	case <-ctx.Done():
	}
}

// refusedConfig explains why the configuration can't be read.
func refusedConfig(err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("the servers have no %s, which comes with ZooKeeper 3.5: %w", configPath, err)
	}
	return err
}

// tell writes to the log, once for each reason, why the configuration is not followed.
func (t *tracker) tell(why error) {
	if t.told != why.Error() {
		t.told = why.Error()
		t.s.Log(slog.LevelWarn, "ensemble not tracked", "err", why)
	}
}

// apply makes the members the servers to try, unless that changes nothing.
func (t *tracker) apply(config []byte) {
	s := t.s
	id := s.Snapshot().ID
	next, err := dial.ParseMembers(config, s.cfg.TLS != nil)
	switch {
	case err != nil:
		t.tell(err)
		return
	case len(next.Addresses) < next.Total || next.Total == 0:
		t.tell(fmt.Errorf("the configuration has the client addresses of %d of %d servers: a server has one in zoo.cfg as server.N=…;port, not as clientPort (with TLS the second behind the semicolon)", len(next.Addresses), next.Total))
		return
	case id == t.sessionID && next.Version < t.members.Version:
		return
	}
	slices.Sort(next.Addresses)
	isSame := slices.Equal(next.Addresses, t.members.Addresses)
	t.sessionID, t.members, t.told = id, next, ""
	if isSame {
		return
	}
	s.wire.Dialer.Follow(next.Addresses)
	s.Log(slog.LevelInfo, "ensemble changed", "servers", strings.Join(next.Addresses, ","))
}

// awaitChange blocks until the configuration may have changed. Meanwhile it leaves a server that has left the ensemble.
func (t *tracker) awaitChange(ctx context.Context, w *Watch) {
	s := t.s
	isTold := false
	for {
		var retry <-chan time.Time
		if line := s.wire.Line(); line != nil && line.HasLeft() {
			if s.wire.Dialer.ReachMember() {
				s.Log(slog.LevelInfo, "leaving a server that has left the ensemble", "server", line.Server)
				line.Leave()
			} else {
				if !isTold {
					isTold = true
					s.Log(slog.LevelWarn, "the server has left the ensemble, and no member can be reached", "server", line.Server, "members", strings.Join(t.members.Addresses, ","))
				}
				retry = time.After(s.keeper.beatPeriod())
			}
		}
		select {
		case <-w.Fired():
			return
		case <-s.life.open.Done():
			return
		case <-ctx.Done():
			return
		case <-retry:
		}
	}
}
