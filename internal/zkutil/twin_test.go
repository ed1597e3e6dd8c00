package zkutil

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// twinOf is a name with the uuid of another one and a number of its own.
func twinOf(name, sequence string) string { return name[:len(name)-len(sequence)] + sequence }

// A second znode with our own uuid is ours, be it ahead of the first or behind it: nobody
// waits for it, and it goes. Those of others stay.
func TestTwinIsRemoved(t *testing.T) {
	for where, sequence := range map[string]string{"ahead": "0000000003", "behind": "0000000009"} {
		t.Run(where, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := newEnsemble(t)
				s := connect(t, srv.config(6*time.Second))
				srv.Put("/m", nil)
				stranger := "_c_" + newUUID() + "-lock-0000000010"
				srv.Put("/m/"+stranger, nil)
				srv.SetSequence("/m", 5)
				var mu sync.Mutex // protects twin
				twin := ""
				srv.onRequest(func(r zktest.Request) zktest.Fault {
					for _, name := range srv.Children("/m") {
						if r.Op == zktest.OpGetChildren2 && strings.HasSuffix(name, "0000000005") {
							mu.Lock()
							twin = twinOf(name, sequence)
							mu.Unlock()
							srv.Put("/m/"+twinOf(name, sequence), nil)
						}
					}
					return zktest.Fault{}
				})
				turn := acquireLater(t.Context(), mutexOn(s, "/m"))
				pass(time.Second)
				mu.Lock()
				defer mu.Unlock()
				require.NotEmpty(t, twin)
				require.NotEmpty(t, turn, "it waits for itself")
				got := <-turn
				require.NoError(t, got.err)
				require.NotEqual(t, "/m/"+twin, got.entry.Path())
				require.Len(t, slices.DeleteFunc(srv.log.Requests(zktest.OpDelete), func(r zktest.Request) bool { return r.Path != "/m/"+twin }), 1)
				require.NoError(t, got.entry.Leave())
				require.Equal(t, []string{stranger}, srv.Children("/m"))
			})
		})
	}
}

// While the removal of the twin is refused the one who looks again and again asks for it no
// more often, and gets his turn.
func TestTwinIsRemovedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		other, s := twoClients(t, srv, 6*time.Second)
		e := acquire(t, mutexOn(other, "/m"))
		turn := acquireLater(t.Context(), mutexOn(s, "/m"))
		synctest.Wait()
		queue := srv.Children("/m")
		own := queue[slices.IndexFunc(queue, func(name string) bool { return "/m/"+name != e.Path() })]
		twin := "/m/" + twinOf(own, "0000000009")
		srv.Put(twin, nil)
		var refusals atomic.Int32
		srv.onRequest(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpDelete && r.Path == twin && refusals.Add(1) <= 5 {
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		for range 20 { // each time he looks
			srv.Disconnect()
			pass(10 * time.Millisecond)
		}
		require.LessOrEqual(t, refusals.Load(), int32(3))
		require.NoError(t, e.Leave())
		got := <-turn
		require.NoError(t, got.err)
		require.NoError(t, got.entry.Leave())
		eventually(t, time.Minute, func() bool { return len(srv.Children("/m")) == 0 })
	})
}
