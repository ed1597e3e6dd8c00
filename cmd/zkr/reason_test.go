//go:build linux

package main_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestStoppedZkrSaysForHowLong stops zkr past several moments: before the end of trust but within the grace, after it,
// and after the session. The next contender may have the lock by then. Each time zkr exits with 74 and says why.
func TestStoppedZkrSaysForHowLong(t *testing.T) {
	const timeout = 6 * time.Second
	for _, stop := range []time.Duration{timeout/2 + 500*time.Millisecond, timeout * 5 / 6, timeout + 2*time.Second} {
		for n := range 3 {
			t.Run(fmt.Sprintf("%v %d", stop, n), func(t *testing.T) {
				w := newWorld(t)
				r := w.start("lock", "--session-timeout", timeout.String(), "/l", "--", "sh", "-c", "echo > ready; while :; do sleep 0.02; done")
				w.content("ready")
				awaitHeartbeats(t, w.server.Observe(), 1)
				r.signal(syscall.SIGSTOP)
				time.Sleep(stop) //nolint:forbidigo // a length of silence
				r.signal(syscall.SIGCONT)
				if stop < timeout*2/3 { // it may also have kept the lock, if the stop ended ahead of the grace
					r.signal(syscall.SIGTERM)
					if r.code() == 128+15 {
						return
					}
				}
				require.Equal(t, 74, r.code(), r.stderr.String())
				require.Regexp(t, `^zkr: lock (lost|given up): /l/\S+: this process did not run for \d+\.\ds\n$`, r.stderr.String())
			})
		}
	}
}

// TestStoppedLeaderSaysForHowLong requires the reason of a loss also from elect, which continues after the loss.
func TestStoppedLeaderSaysForHowLong(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "ZKR_SESSION_TIMEOUT="+shortSession.String())
	r := w.start("elect", "/l", "--", "sh", "-c", "[ -e ready ] && exit 9; echo > ready; while :; do sleep 0.02; done")
	w.content("ready")
	r.signal(syscall.SIGSTOP)
	time.Sleep(shortSession) //nolint:forbidigo // a length of silence
	r.signal(syscall.SIGCONT)
	require.Equal(t, 9, r.code())
	require.Regexp(t, `this process did not run for [4-9]\.\ds`, r.stderr.String())
}

// TestDeletionIsNotTakenForAStop requires that a short stop is not reported as the reason for another kind of loss.
func TestDeletionIsNotTakenForAStop(t *testing.T) {
	w := newWorld(t)
	r := w.start("lock", "/l", "--", "sh", "-c", "echo > ready; while :; do sleep 0.02; done")
	w.content("ready")
	r.signal(syscall.SIGSTOP)
	w.server.Delete(w.awaitContenders("/l", 1)[0])
	time.Sleep(2 * time.Second) //nolint:forbidigo // a length of silence
	r.signal(syscall.SIGCONT)
	require.Equal(t, 74, r.code())
	require.Contains(t, r.stderr.String(), "its znode was deleted")
}

// TestLockIsGivenUpWhileTrusted requires SIGTERM while the lock is still held.
func TestLockIsGivenUpWhileTrusted(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "ZKR_SESSION_TIMEOUT="+shortSession.String())
	r := w.start("lock", "/l", "--", "sh", "-c", "echo > ready; exec sleep 60")
	w.content("ready")
	w.server.Partition(w.owner())
	require.Equal(t, 74, r.code())
	require.Regexp(t, `^zkr: lock given up: /l/\S+: the servers are silent\n$`, r.stderr.String(), "and nothing about the grace")
}

// TestDefaultGraceLeavesTimeForASilence: with a session timeout of 12 s, the default grace of 5 s is cut to 2 s, so a
// silence of 3.5 s does not end the command.
func TestDefaultGraceLeavesTimeForASilence(t *testing.T) {
	w := newWorld(t)
	r := w.start("lock", "--session-timeout", "12s", "/l", "--", "sh", "-c", "echo > ready; exec sleep 60")
	w.content("ready")
	owner := w.owner()
	awaitHeartbeats(t, w.server.Observe(), 1)
	time.Sleep(600 * time.Millisecond) //nolint:forbidigo // the latest proof is that old
	w.server.Partition(owner)
	time.Sleep(3500 * time.Millisecond) //nolint:forbidigo // a length of silence
	w.server.HealSessions(owner)
	awaitHeartbeats(t, w.server.Observe(), 2)
	require.Empty(t, r.stderr.String())
	r.signal(syscall.SIGTERM)
	require.Equal(t, 128+15, r.code())
	require.NotContains(t, r.stderr.String(), "lock")
}
