//go:build linux

package main_test

import (
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Without a terminal there is a line for each lock at each look, the longest waits first.
func TestTopAsLines(t *testing.T) {
	w := newWorld(t)
	w.hold("/locks/idle", "ann")
	client := w.client()
	w.hold("/locks/short", "bob")
	w.hold("/locks/long", "night shift")
	w.wait(client, "/locks/long", "/locks/long", "first")
	w.wait(client, "/locks/short", "/locks/short", "second")
	r := w.start("top", "--every", "50ms", "/locks")
	w.eventually(func() bool { return strings.Count(r.stdout.String(), "\n") >= 6 }, "two looks")
	lines := strings.Split(r.stdout.String(), "\n")
	require.Regexp(t, `^\S+T\S+ /locks/long mutex waiting=1 longest=\d+s holder="night shift" for=\d+s$`, lines[0])
	require.Regexp(t, ` /locks/short mutex waiting=1 longest=\d+s holder="bob" for=\d+s$`, lines[1])
	require.Regexp(t, ` /locks/idle mutex waiting=0 longest=- holder="ann" for=\d+s$`, lines[2])
	r.signal(syscall.SIGTERM)
	require.Equal(t, 128+15, r.code())
}

func TestTopOfNothing(t *testing.T) {
	w := newWorld(t)
	w.server.Put("/idle", nil)
	r := w.start("top", "--every", "50ms", "/idle")
	w.eventually(func() bool { return strings.Contains(r.stdout.String(), " no locks\n") }, "it says so")
	require.Equal(t, 64, w.run("top", "--every", "0s", "/idle").code)
	r.signal(syscall.SIGINT)
	require.Equal(t, 130, r.code())
}

// On a terminal the view is live. It shows a new waiter, ends with q, and restores the terminal.
func TestTopOnATerminal(t *testing.T) {
	w := newTerminal(newWorld(t))
	lease := w.hold("/locks/a", "ann")
	modes := w.modes()
	r := w.start("top", "--every", "50ms", "/locks")
	w.eventually(func() bool { return strings.Contains(w.screen.String(), `"ann"`) }, "the holder")
	require.Contains(t, w.screen.String(), "\x1b[?1049h")
	require.Contains(t, w.screen.String(), "1 locks below /locks")
	waiter := w.wait(w.client(), "/locks/a", "/locks/a", "bob")
	w.eventually(func() bool { return strings.Contains(w.screen.String(), "\n1  ") }, "the waiter")
	w.server.Delete(waiter)
	w.types("q")
	require.Equal(t, 0, r.code())
	require.Equal(t, modes, w.modes())
	w.eventually(func() bool { return strings.HasSuffix(w.screen.String(), "\x1b[?1049l") }, "the old screen")
	require.NoError(t, lease.Release())

	r = w.start("top", "/locks")
	w.eventually(func() bool { return w.modes() != modes }, "it runs")
	w.types("\x03")
	require.Equal(t, 130, r.code())
	require.Equal(t, modes, w.modes())
}

// TestTopKeysWhileTheServersAreSilent: q ends it, and restores the terminal.
func TestTopKeysWhileTheServersAreSilent(t *testing.T) {
	w := newTerminal(newWorld(t))
	w.seedHolder("/locks/a", "ann")
	modes := w.modes()
	r := w.start("top", "--every", "50ms", "/locks")
	w.eventually(func() bool { return strings.Contains(w.screen.String(), `"ann"`) }, "the holder")
	w.silent()
	w.eventually(func() bool { return strings.Contains(w.screen.String(), "no answer for 3s") }, "it says so")
	w.types("q")
	require.Equal(t, 0, r.code())
	require.Equal(t, modes, w.modes())
	w.eventually(func() bool { return strings.Contains(w.screen.String(), "\x1b[?1049l") }, "the old screen") // the terminal may be read after the end
}

// TestCtrlZInTop requires that the shell gets its screen and its modes back, and that top resumes.
func TestCtrlZInTop(t *testing.T) {
	s := newShell(newWorld(t), "true")
	s.seedHolder("/locks/a", "ann")
	s.types(binary + " top --every 50ms /locks\n")
	for range 3 {
		s.sees("\x1b[?1049h")
		s.sees(`"ann"`)
		s.types("\x1a")
		s.sees("\x1b[?1049l")
		s.sees("PROMPT> ")
		s.types("echo 'ec''hoed'\n")
		s.sees("echoed")
		s.types("fg\n")
	}
	s.sees(`"ann"`)
	s.types("q")
	s.prompt("0")
	s.quits()
}

// TestDev is a server for everything else here.
func TestDev(t *testing.T) {
	w := newWorld(t)
	r := w.start("dev", "--listen", "127.0.0.1:0")
	w.eventually(func() bool { return strings.Contains(r.stdout.String(), "\n") }, "it listens")
	address, ok := strings.CutPrefix(strings.TrimSpace(r.stdout.String()), "export ZKR_SERVERS=")
	require.True(t, ok)
	got := w.run("lock", "--servers", address, "/l", "--", "echo", "ran")
	require.Equal(t, result{0, "ran\n", ""}, got)
	require.Equal(t, 71, w.run("dev", "--listen", address).code, "in use")
	require.Equal(t, 64, w.run("dev", "--listen", "nowhere").code)
	require.Empty(t, r.stderr.String())
	r.signal(syscall.SIGTERM)
	require.Equal(t, 128+15, r.code())

	r = w.start("dev", "--listen", ":0")
	w.eventually(func() bool { return strings.Contains(r.stdout.String(), "\n") }, "it listens")
	w.eventually(func() bool { return strings.Contains(r.stderr.String(), "every host that can reach this port") }, "a warning")
}
