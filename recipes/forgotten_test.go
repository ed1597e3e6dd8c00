package recipes_test

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// leaders returns the current leaders, according to their listeners.
type leaders struct {
	mu   sync.Mutex // protects what is below
	now  map[string]bool
	most int // at one moment
}

func (l *leaders) listener(name string) latch.Listener {
	set := func(leads bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.now, name)
		if leads {
			l.now[name] = true
		}
		l.most = max(l.most, len(l.now))
	}
	return latch.Listener{IsLeader: func(*recipes.Lease) { set(true) }, NotLeader: func() { set(false) }}
}

// countOf returns how many of several things are of a kind.
func countOf[T any](all []T, is func(T) bool) (n int) {
	for _, one := range all {
		if is(one) {
			n++
		}
	}
	return n
}

// Servers that lose all data, or all data after a backup, cost a lock its holder and an election its leader, but
// nothing else. The clients reconnect by themselves.
func TestClientsComeBackToEmptiedServers(t *testing.T) {
	for name, lose := range map[string]func(b *bubble.Bubble) (restore func()){
		"emptied": func(b *bubble.Bubble) func() { return b.Srv.Wipe },
		"restored": func(b *bubble.Bubble) func() {
			backup := b.Srv.Backup()
			return func() { b.Srv.Restore(backup) }
		},
		"down for long, and emptied": func(b *bubble.Bubble) func() {
			return func() {
				b.Srv.Stop()
				long := time.Hour
				if testkit.IsRaced { // the race detector crashes after so many timers of a bubble: golang/go issue 78156
					long = 2 * time.Minute
				}
				bubble.Pass(long)
				b.Srv.Wipe()
				require.NoError(b, b.Srv.Restart())
				b.Srv.Wipe() // because the start began an epoch
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) {
				restore := lose(b)
				log, led := new(testkit.Log), &leaders{now: map[string]bool{}}
				var clients []*recipes.Client
				var locks []*mutex.InterProcessMutex
				var elections []*latch.LeaderLatch
				for i := range 3 {
					client := testclient.ConnectSettled(b, b.Srv, recipes.WithNamespace("/app"), recipes.WithLogger(log.Logger(slog.LevelWarn)))
					lock, err := mutex.New(client, "/lock")
					require.NoError(b, err)
					election, err := latch.New(client, "/latch", latch.WithListener(led.listener(fmt.Sprint(i))))
					require.NoError(b, err)
					require.NoError(b, election.Start())
					clients, locks, elections = append(clients, client), append(locks, lock), append(elections, election)
				}
				for range 100 {
					b.Srv.Put("/app/work", nil)
				}
				lease := bubble.Acquire(b, locks[0].Acquire)
				term, err := elections[0].Await(b.Context())
				require.NoError(b, err)
				waiting := bubble.Waiting(b, b.Context(), locks[1].Acquire)
				bubble.Pass(testclient.SessionTimeout)
				log.Take()

				restore()
				require.ErrorIs(b, b.Cause(lease), recipes.ErrSessionLost)
				require.ErrorIs(b, b.Cause(term), recipes.ErrSessionLost)
				bubble.Pass(testclient.SessionTimeout / 6)
				require.Equal(b, recipes.Lost, clients[0].State())
				require.ErrorContains(b, clients[0].Health().Err, "lost transactions", "while it is refused")
				next := bubble.Granted(b, waiting)
				require.Less(b, next.FencingToken(), lease.FencingToken())
				b.Release(next)
				b.Release(bubble.Acquire(b, locks[2].Acquire))

				bubble.Pass(testclient.SessionTimeout)
				require.Equal(b, 3, countOf(log.Take(), func(line string) bool {
					return strings.Contains(line, "lost transactions") && strings.Contains(line, "level=WARN") && strings.Contains(line, "abandoned")
				}), "each client says so once")
				require.Equal(b, 1, countOf(elections, (*latch.LeaderLatch).HasLeadership))
				require.Equal(b, 3, countOf(clients, func(c *recipes.Client) bool { return c.State() == recipes.Connected }))
				require.Len(b, b.Srv.Children("/app/latch"), 3)
				require.Len(b, b.Srv.Sessions(), 3)
				require.Equal(b, 1, led.most)
				for _, election := range elections {
					require.NoError(b, election.Close())
				}
			})
		})
	}
}
