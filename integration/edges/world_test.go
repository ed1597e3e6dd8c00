package edges_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// The owner of the protected znodes, and a user who only claims to be the owner.
const (
	owner    = "shop:right"
	impostor = "shop:wrong"
)

// ownersOnly is an ACL that lets the owner do everything and others nothing.
func ownersOnly() []zk.ACL { return zk.DigestACL(zk.PermAll, "shop", "right") }

// credential presents a user to the server.
func credential(user string) recipes.Option { return recipes.WithAuth("digest", []byte(user)) }

// ownersConn is a plain connection with the owner's permissions.
func ownersConn(t *testing.T, server string) *zk.Conn {
	t.Helper()
	conn := stranger(t, server)
	require.NoError(t, conn.AddAuth("digest", []byte(owner)))
	return conn
}

// brisk keeps the pauses short of a client that loses session after session.
func brisk() recipes.Option {
	return recipes.WithRetryPolicy(recipes.RetryPolicy{InitialInterval: time.Millisecond, MaxInterval: 10 * time.Millisecond})
}

// tree lists every znode of the server but its own.
func tree(t *testing.T, conn *zk.Conn) map[string]struct{} {
	t.Helper()
	found := map[string]struct{}{}
	var walk func(path string)
	walk = func(path string) {
		children, _, err := conn.Children(path)
		if err == zk.ErrNoNode { //nolint:errorlint // zk.Conn returns the value itself; deleted meanwhile
			return
		}
		found[path] = struct{}{}
		if err == zk.ErrNoAuth { //nolint:errorlint // as above
			return
		}
		require.NoError(t, err, path)
		for _, child := range children {
			if below := strings.TrimSuffix(path, "/") + "/" + child; below != "/zookeeper" {
				walk(below)
			}
		}
	}
	walk("/")
	return found
}

// unchanged returns a function that requires that no new znode exists, except empty containers that had a child, because the
// server removes those. Pending deletions get time. Below a path that the owner may not read, only ephemeral znodes count on
// a ZooKeeper 3.9.
func unchanged(t *testing.T, server string) (check func(t *testing.T, after string)) {
	t.Helper()
	conn := ownersConn(t, server)
	before := tree(t, conn)
	left := func(t *testing.T) (paths []string) {
		t.Helper()
		for path := range tree(t, conn) {
			if _, known := before[path]; known {
				continue
			}
			found, stat, err := conn.Exists(path)
			if errors.Is(err, zk.ErrNoAuth) { // from 3.9 on; then the server's own list has to do
				dump, err := zkadmin.FourLetter(t.Context(), server, "dump")
				require.NoError(t, err)
				if strings.Contains(dump, "\t"+path) {
					paths = append(paths, path)
				}
				continue
			}
			require.NoError(t, err)
			if reaped := stat.NumChildren == 0 && stat.Cversion > 0; found && !reaped {
				paths = append(paths, path)
			}
		}
		return paths
	}
	return func(t *testing.T, after string) {
		t.Helper()
		deadline := time.Now().Add(atOnce)
		for len(left(t)) > 0 && time.Now().Before(deadline) {
			<-time.After(5 * time.Millisecond)
		}
		require.Empty(t, left(t), after)
	}
}

// constructors make each recipe on a path, with an id of so many bytes.
func constructors() map[string]func(c *recipes.Client, path string, id int) error {
	idle := func(ctx context.Context, _ *recipes.Lease) error {
		<-ctx.Done()
		return nil
	}
	return map[string]func(*recipes.Client, string, int) error{
		"mutex: new": func(c *recipes.Client, path string, id int) error {
			_, err := mutex.New(c, path, mutex.WithID(strings.Repeat("x", id)))
			return err
		},
		"latch: new": func(c *recipes.Client, path string, id int) error {
			_, err := latch.New(c, path, latch.WithID(strings.Repeat("x", id)))
			return err
		},
		"selector: new": func(c *recipes.Client, path string, id int) error {
			_, err := selector.New(c, path, idle, selector.WithID(strings.Repeat("x", id)))
			return err
		},
	}
}

// situation is the state at a call: a client, a path, and the holder's znode there.
type situation struct {
	t           *testing.T
	ctx         context.Context
	client      *recipes.Client
	path, znode string
}

// call is a call that sends a request to the server.
type call func(s situation) error

// acquisitions are the calls that make a znode of their own.
func acquisitions() map[string]call {
	return map[string]call{
		"mutex: acquire": func(s situation) error {
			_, err := newMutex(s.t, s.client, s.path).Acquire(s.ctx)
			return err
		},
		"mutex: try acquire": func(s situation) error {
			_, err := newMutex(s.t, s.client, s.path).TryAcquire(s.ctx)
			return err
		},
		"mutex: do": func(s situation) error {
			return newMutex(s.t, s.client, s.path).Do(s.ctx, func(context.Context, *recipes.Lease) error {
				s.t.Error("the function has run")
				return nil
			})
		},
		"latch: join": func(s situation) error {
			told := make(chan error, 100)
			l, err := latch.New(s.client, s.path, latch.WithErrorHandler(func(err error) { told <- err }))
			require.NoError(s.t, err)
			if err := l.Start(); err != nil {
				return err
			}
			defer func() { require.NoError(s.t, l.Close()) }()
			err = refusalIn(s, told)
			require.Equal(s.t, err, l.Err(), "the handler and Err say the same")
			require.False(s.t, l.HasLeadership())
			return err
		},
		"selector: join": func(s situation) error {
			told := make(chan error, 100)
			leads, err := selector.New(s.client, s.path, func(context.Context, *recipes.Lease) error {
				s.t.Error("the function has run")
				return nil
			}, selector.WithErrorHandler(func(err error) { told <- err }))
			require.NoError(s.t, err)
			if err := leads.Start(); err != nil {
				return err
			}
			defer func() { require.NoError(s.t, leads.Close()) }()
			return refusalIn(s, told)
		},
	}
}

// refusalIn waits for the error that a refused latch or selector, which keeps trying, passes to its error handler.
func refusalIn(s situation, told <-chan error) error {
	s.t.Helper()
	select {
	case err := <-told:
		return err
	case <-time.After(atOnce):
		require.FailNow(s.t, "the error handler was told nothing")
	case <-s.ctx.Done():
	}
	return s.ctx.Err()
}

// looks are the calls that look at the others.
func looks() map[string]call {
	return map[string]call{
		"mutex: participants": func(s situation) error {
			_, err := newMutex(s.t, s.client, s.path).Participants(s.ctx)
			return err
		},
		"latch: leader, latch: participants": func(s situation) error {
			l, err := latch.New(s.client, s.path)
			require.NoError(s.t, err)
			_, leader := l.Leader(s.ctx)
			_, participants := l.Participants(s.ctx)
			return both(s.t, leader, participants)
		},
		"selector: leader, selector: participants": func(s situation) error {
			leads, err := selector.New(s.client, s.path, func(context.Context, *recipes.Lease) error { return nil })
			require.NoError(s.t, err)
			_, leader := leads.Leader(s.ctx)
			_, participants := leads.Participants(s.ctx)
			return both(s.t, leader, participants)
		},
		"revoke: attempt": func(s situation) error {
			return revoke.New(s.client).AttemptRevoke(s.ctx, s.znode)
		},
	}
}

// both is the first of two errors that must say the same.
func both(t *testing.T, one, other error) error {
	t.Helper()
	require.Equal(t, one == nil, other == nil, "%v; %v", one, other)
	return one
}

// all are the calls of both kinds.
func all() map[string]call {
	calls := acquisitions()
	maps.Copy(calls, looks())
	return calls
}

// watches counts all sessions' watches on a znode and below.
func watches(t *testing.T, server, root string) (count int) {
	t.Helper()
	watches, err := zkadmin.Watches(t.Context(), server)
	require.NoError(t, err)
	for _, w := range watches {
		if w.Path == root || strings.HasPrefix(w.Path, root+"/") {
			count++
		}
	}
	return count
}
