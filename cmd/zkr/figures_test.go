//go:build linux

package main_test

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// Grandchildren alive after a loss, of 100 losses: 0. Half of them are deleted znodes, half killed processes.
func TestFigureGrandchildrenAfterALoss(t *testing.T) {
	w := newWorld(t)
	requireNoGrandchildren(w, testkit.Shorter(100, 20), func(path string) { w.server.Delete(w.awaitContenders(path, 1)[0]) })
}

// requireNoGrandchildren makes losses, for which deleteZnode deletes the only znode of a lock.
func requireNoGrandchildren(w *world, losses int, deleteZnode func(path string)) {
	w.Helper()
	const batch = 10
	alive := 0
	for round := range losses / batch {
		lock := func(k int) string { return fmt.Sprintf("/locks/%d/%d", round, k) } // a killed one's session lives on
		var runs []*run
		for k := range batch {
			name := fmt.Sprintf("pid-%d-%d", round, k)
			runs = append(runs, w.start("lock", "--grace", "200ms", lock(k), "--", "sh", "-c",
				`sh -c 'sh -c "trap \"\" TERM; echo \$\$ > `+name+`; while :; do sleep 0.05; done" & wait' & wait`))
		}
		pids := make([]int, batch)
		for k := range batch {
			pids[k] = w.pid(fmt.Sprintf("pid-%d-%d", round, k))
		}
		for k, r := range runs {
			if k%2 == 0 {
				r.signal(syscall.SIGKILL)
			} else {
				deleteZnode(lock(k))
			}
		}
		for k, r := range runs {
			r.await() // includes the end of the watchdog, which kills the group first
			if isAlive(pids[k]) {
				alive++
			}
			if k%2 == 1 {
				require.Equal(w, 74, r.code(), r.stderr.String())
			}
		}
	}
	w.Logf("grandchildren alive after a loss: %d of %d", alive, losses)
	require.Zero(w, alive)
}

// With 50 commands whose connections fall silent, and a session timeout of 4 s, no command is alive at the next
// grant. The server grants the next contender as soon as the session ends.
func TestFigureCommandsAliveAtTheNextGrant(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "ZKR_SESSION_TIMEOUT="+shortSession.String())
	const batch = 10
	var mu sync.Mutex
	var ahead []time.Duration // of the grant, when the command was dead
	alive, cuts := 0, testkit.Shorter(50, 10)
	for range cuts / batch {
		var group sync.WaitGroup
		var runs []*run
		for k := range batch {
			_ = os.Remove(w.file(fmt.Sprintf("pid-%d", k)))
			runs = append(runs, w.start("lock", "--grace", "500ms", fmt.Sprintf("/locks/%d", k), "--", "sh", "-c",
				fmt.Sprintf(`trap "" TERM; echo $$ > pid-%d; while :; do sleep 0.05; done`, k)))
		}
		for k := range batch {
			path := fmt.Sprintf("/locks/%d", k)
			pid := w.pid(fmt.Sprintf("pid-%d", k))
			_, stat, _ := w.server.Get(w.awaitContenders(path, 1)[0])
			next := w.client()
			w.server.Partition(stat.EphemeralOwner)
			group.Go(func() { // ends with the death of the command and the grant
				diedAt := make(chan time.Time, 1)
				go func() { // ends with the command
					for isAlive(pid) {
						time.Sleep(5 * time.Millisecond) //nolint:forbidigo // polled
					}
					diedAt <- time.Now()
				}()
				w.holdWith(next, path, "next")
				grantedAt, isDead := time.Now(), !isAlive(pid)
				mu.Lock()
				defer mu.Unlock()
				if !isDead {
					alive++
				}
				ahead = append(ahead, grantedAt.Sub(<-diedAt))
			})
		}
		group.Wait()
		for _, r := range runs {
			require.Equal(t, 74, r.code(), r.stderr.String())
		}
		w.server.HealSessions()
		for k := range batch {
			w.server.Delete(w.awaitContenders(fmt.Sprintf("/locks/%d", k), 1)[0])
		}
	}
	t.Logf("commands alive at the next grant: %d of %d; the last died %v before", alive, cuts, slices.Min(ahead))
	require.Zero(t, alive)
}

// Eight at once take turns within a second, on a machine that has nothing else to do.
func TestFigureEightDates(t *testing.T) { requireEightDates(t, newLoneWorld(t)) }

func requireEightDates(t *testing.T, w *world) {
	t.Helper()
	require.Equal(t, 0, w.run("lock", "/l", "--", "date").code)
	best := time.Hour
	for range 5 {
		began := time.Now()
		var runs []*run
		for range 8 {
			runs = append(runs, w.start("lock", "/l", "--", "date"))
		}
		for _, r := range runs {
			require.Equal(t, 0, r.code())
			require.NotEmpty(t, r.stdout.String())
		}
		best = min(best, time.Since(began))
	}
	t.Logf("8 × zkr lock P -- date: %v", best)
	require.Less(t, best, time.Second)
}
