//go:build linux

package main_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/latch"
)

// watched is a terminal whose screen is read.
func watched(w *world) (*terminal, *buffer) {
	w.Helper()
	t := newTerminal(w)
	return t, t.screen
}

// shows waits until a screen matches.
func (w *world) shows(screen *buffer, pattern string) {
	w.Helper()
	expression := regexp.MustCompile(pattern)
	require.Eventually(w, func() bool { return expression.MatchString(screen.String()) }, patience, 20*time.Millisecond, "%s in %q", pattern, screen)
}

// TestWaitOnATerminalSaysWhoIsAhead requires a line that is renewed, and removed when the command runs.
func TestWaitOnATerminalSaysWhoIsAhead(t *testing.T) {
	for _, command := range []string{"lock", "elect"} {
		t.Run(command, func(t *testing.T) {
			w, screen := watched(newWorld(t))
			lease := w.hold("/l", "report-1")
			waiter := w.wait(w.client(), "/l", "/l", "report-2")
			r := w.start(command, "--id", "report-2", "/l", "--", "echo", "ran")
			w.shows(screen, `zkr: waiting behind "report-1" \(position 3, for [1-9]s\)`)
			w.shows(screen, `zkr: waiting behind "report-1" \(position 3, for [2-9]s\)`)
			w.server.Delete(waiter)
			w.shows(screen, `zkr: waiting behind "report-1" \(position 2, for`)
			require.NoError(t, lease.Release())
			require.Equal(t, 0, r.code())
			w.shows(screen, `\r\x1b\[K(zkr: leading: .*\r\n)?ran\r\n$`)
		})
	}
}

// TestQuietWait shows nothing, on a terminal with -q, and elsewhere without it.
func TestQuietWait(t *testing.T) {
	w, screen := watched(newWorld(t))
	w.hold("/l", "report-1")
	require.Equal(t, 75, w.start("lock", "-q", "-w", "2.5", "/l", "--", "true").code())
	w.shows(screen, `^zkr: /l not acquired within 2\.5s: held by "report-1"`)
	require.Regexp(t, `^zkr: /l not acquired within 2s: held by`, w.run("lock", "-w", "2", "/l", "--", "true").stderr)
}

func TestSlowConnectOnATerminal(t *testing.T) {
	w, screen := watched(newWorld(t))
	w.server.Freeze()
	r := w.start("lock", "-w", "10", "/l", "--", "true")
	w.shows(screen, `zkr: connecting to `+w.server.Addr()+` \(for [1-9]s\)`)
	w.types("\x03")
	require.Equal(t, 130, r.code())
}

// TestElectIsBounded as lock is, for its first term.
func TestElectIsBounded(t *testing.T) {
	w := newWorld(t)
	lease := w.hold("/l", "ann")
	got := w.run("elect", "-n", "/l", "--", "true")
	require.Equal(t, 75, got.code)
	require.Contains(t, got.stderr, `held by "ann"`)
	got = w.run("elect", "-w", "1", "-E", "9", "/l", "--", "true")
	require.Equal(t, 9, got.code)
	require.Contains(t, got.stderr, "/l not acquired within 1s")
	require.Len(t, w.server.Children("/l"), 1)
	require.NoError(t, lease.Release())
	require.Equal(t, 0, w.run("elect", "-n", "/l", "--", "true").code)
}

// TestElectStandsAsALatch where others do, and where it was asked to.
func TestElectStandsAsALatch(t *testing.T) {
	w := newWorld(t)
	other, err := latch.New(w.client(), "/l", latch.WithID("service"))
	require.NoError(t, err)
	require.NoError(t, other.Start())
	_, err = other.Await(t.Context())
	require.NoError(t, err)
	require.Equal(t, 75, w.run("elect", "-n", "/l", "--", "true").code)
	require.Equal(t, 75, w.run("elect", "-w", "1", "/l", "--", "true").code)
	w.awaitContenders("/l", 1)
	r := w.start("elect", "--session-timeout", "6s", "--id", "zkr", "--grace", "100ms", "/l", "--", "sh", "-c",
		"echo $ZKR_LOCK_ZNODE >> znodes; [ $(wc -l < znodes) = 2 ] && exit 9; exec sleep 100")
	w.awaitContenders("/l", 2)
	require.NoError(t, other.Close())
	w.eventually(func() bool { return len(w.lines("znodes")) == 1 }, "it leads")
	require.Contains(t, w.lines("znodes")[0], "-latch-")
	require.Equal(t, 64, w.run("lock", "-n", "/l", "--", "true").code)
	w.server.Delete(w.lines("znodes")[0])
	require.Equal(t, 9, r.code(), "it stands again after a loss")
	require.Empty(t, w.server.Children("/l"))

	got := w.run("elect", "--latch", "/new", "--", "sh", "-c", "echo $ZKR_LOCK_ZNODE")
	require.Equal(t, 0, got.code)
	require.Contains(t, got.stdout, "-latch-")
	w.hold("/m", "ann")
	require.Equal(t, 64, w.run("elect", "--latch", "-n", "/m", "--", "true").code)
}
