package zktest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// verdict is a testing.TB that records failures and logs.
type verdict struct {
	testing.TB
	failed   bool
	said     string
	cleanups []func()
}

func (v *verdict) Helper()      {}
func (v *verdict) Failed() bool { return v.failed }

func (v *verdict) Log(args ...any)  { v.said += fmt.Sprintln(args...) }
func (v *verdict) Cleanup(f func()) { v.cleanups = append(v.cleanups, f) }
func (v *verdict) Fatalf(format string, args ...any) {
	v.failed = true
	v.said += fmt.Sprintf(format, args...)
}

func TestRequireIdleReportsLeftovers(t *testing.T) {
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		srv.RequireIdle(w)
		a, b := w.session(srv), w.session(srv)
		a.did(create("/lasting", 0))
		srv.RequireIdle(w)
		a.did(create("/a", 1))
		b.did(get("/a", true))
		b.did(list("/", true))
		a.did(request{proto.OpAddWatch, proto.NewEncoder().String("/p").Int32(proto.WatchRecursive).Body()})
		require.Zero(w, since(began))
		v := &verdict{TB: w}
		srv.RequireIdle(v)
		require.True(w, v.failed)
		require.Equal(w, `zktest: not idle after 5s:
	ephemeral znode /a of session 1
	watch on the children of /, set by session 2
	watch on the children of /p, set by session 1
	watch on the data of /a, set by session 2
	watch on the data of /p, set by session 1`, v.said)
		require.Equal(w, 5*time.Second, since(began))
	})
}

func TestRequireIdleWaits(t *testing.T) {
	t.Parallel() // because two seconds of real time pass in it
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c := session(w, w.dial(srv), 2*time.Second)
		c.did(create("/a", 1))
		c.did(get("/a", true))
		srv.RequireIdle(w) // until the session expires
		require.Empty(w, srv.Sessions())
	})
}

func TestFailedTestShowsTheLatestRequests(t *testing.T) {
	for _, failed := range []bool{true, false} {
		bubble(t, func(w world) {
			v := &verdict{TB: w, failed: failed}
			srv := zktest.NewServer(v)
			c := w.session(srv)
			for i := range 250 {
				c.did(create(fmt.Sprintf("/a%d", i), 0))
			}
			pass(1500 * time.Millisecond)
			c.did(ping())
			c.did(syncing("/"))
			for _, cleanup := range v.cleanups {
				cleanup()
			}
			lines := strings.Split(strings.TrimSuffix(v.said, "\n"), "\n")
			if !failed {
				require.Empty(w, v.said)
				return
			}
			require.Len(w, lines, 101)
			require.Equal(w, "zktest: the latest requests, pings left out:", lines[0])
			require.Equal(w, "\t      +0s  create /a151 by session 1", lines[1])
			require.Equal(w, "\t    +1.5s  sync / by session 1", lines[100])
		})
	}
}

func TestRequestString(t *testing.T) {
	for want, r := range map[string]zktest.Request{
		"connect by a new session at x:1": {Op: zktest.OpConnect, Server: "x:1"},
		"create /a by session 2":          {Op: zktest.OpCreate, Path: "/a", Session: 1<<56 + 2},
	} {
		require.Equal(t, want, r.String())
	}
}
