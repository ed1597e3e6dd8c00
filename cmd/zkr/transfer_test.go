//go:build linux

package main_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The chosen candidate leads. The former leader's command ends, and its zkr queues again.
func TestTransfer(t *testing.T) {
	w := newWorld(t)
	elect := func(id string) {
		w.start("elect", "--priority", "0", "--id", id, "/l", "--", "sh", "-c", "echo $$ >> "+id+"; exec sleep 100")
	}
	elect("a")
	w.eventually(func() bool { return len(w.lines("a")) == 1 }, "a leads")
	elect("b")
	w.awaitContenders("/l", 2)
	elect("c")
	w.awaitContenders("/l", 3)

	got := w.run("elect", "--transfer", "/l", "c")
	require.Equal(t, 0, got.code, got.stderr)
	require.Equal(t, "c leads /l next\n", got.stdout)
	w.eventually(func() bool { return len(w.lines("c")) == 1 }, "c leads")
	w.awaitDead(int(atoi(t, w.lines("a")[0])))
	require.Empty(t, w.lines("b"))
	w.awaitContenders("/l", 3)

	require.Equal(t, 1, w.run("elect", "--transfer", "/l", "nobody").code)
	require.Equal(t, 64, w.run("elect", "--transfer", "/l").code)
	require.Equal(t, 64, w.run("elect", "--transfer", "/l", "c", "--", "true").code)
	require.Equal(t, 64, w.run("elect", "--transfer", "l", "c").code)
}

// A candidate without a priority is not asked.
func TestTransferPastACandidateWithoutPriority(t *testing.T) {
	w := newWorld(t)
	w.start("elect", "--latch", "--id", "plain", "/l", "--", "sh", "-c", "echo > ready; exec sleep 100")
	w.content("ready")
	w.start("elect", "--priority", "3", "--id", "steered", "/l", "--", "true")
	w.awaitContenders("/l", 2)
	got := w.run("elect", "--transfer", "/l", "steered")
	require.Equal(t, 64, got.code)
	require.Contains(t, got.stderr, "can't be asked to yield")
}

// handOver is a way in which a leadership passes to another zkr.
type handOver struct {
	session  time.Duration // of the leader
	priority string        // of the successor
	begin    func(w *world, leader *run)
	overlaps bool // the successor may start while the leader's command still ends
}

// TestHandOversNeverOverlap hands a leadership over in every way. The next command starts only after all processes of the
// previous command are dead, even during a cleanup, and if the command or its child ignores SIGTERM. After a kick, the next
// command may start at once, because its znode is first. In that case it has the greater fencing token, and the previous
// command is killed after the grace.
func TestHandOversNeverOverlap(t *testing.T) {
	const (
		waits = "while :; do sleep 0.02; done"
		known = "echo $ZKR_FENCING_TOKEN >> tokens; "
	)
	commands := map[string]string{
		"ends at once":         known + "echo $$ >> pids; trap 'exit 0' TERM; " + waits,
		"needs a second":       known + "echo $$ >> pids; trap 'sleep 1; exit 0' TERM; " + waits,
		"needs 5 seconds":      known + "echo $$ >> pids; trap 'sleep 5; exit 0' TERM; " + waits,
		"ignores SIGTERM":      known + "trap '' TERM; echo $$ >> pids; " + waits,
		"leaves a child alone": known + "sh -c 'trap \"\" TERM; echo $$ >> pids; " + waits + "' & while [ ! -s pids ]; do sleep 0.01; done; trap 'exit 0' TERM; " + waits,
	}
	const long = 40 * time.Second // whose sixth is a grace of more than 5 s
	handOvers := map[string]handOver{
		"transfer": {long, "-1", func(w *world, _ *run) { w.start("elect", "--transfer", "/l", "next") }, false},
		"priority": {long, "7", func(*world, *run) {}, false},
		"revoke":   {long, "0", func(w *world, _ *run) { w.start("revoke", "/l") }, false},
		"signal":   {long, "0", func(_ *world, leader *run) { leader.signal(syscall.SIGTERM) }, false},
		"loss":     {6 * time.Second, "0", func(w *world, _ *run) { w.server.Partition(w.leadingSession()) }, false},
		"kick":     {long, "0", func(w *world, _ *run) { require.Equal(w, 0, w.run("kick", "--yes", w.leadingZnode()).code) }, true},
	}
	var rows table
	t.Cleanup(func() { rows.log(t, "hand-over, command: seconds until it has ended, and until the next one started") })
	for way, how := range handOvers {
		for command, script := range commands {
			if way == "signal" && command == "ignores SIGTERM" {
				continue // the command catches the signal and continues
			}
			t.Run(way+", a command that "+command, func(t *testing.T) {
				ended, started := how.run(newWorld(t), script)
				rows.add(fmt.Sprintf("%-8s  %-20s  %5.2f  %5.2f", way, command, ended.Seconds(), started.Seconds()))
			})
		}
	}
}

// run hands over from a leader whose command is a script. It returns the times until the script ended and until the next
// command started.
func (how handOver) run(w *world, script string) (ended, started time.Duration) {
	w.Helper()
	leader := w.start("elect", "--session-timeout", how.session.String(), "--priority", "0", "--id", "leader", "--grace", "6s", "/l", "--", "sh", "-c", script)
	w.eventually(func() bool { return len(w.lines("pids")) == 1 }, "the leader's command runs")
	pid := w.pid("pids")
	w.start("elect", "--priority", how.priority, "--id", "next", "/l", "--", "sh", "-c",
		`for pid in $(cat pids); do grep '^State:.*[^Z] (' /proc/$pid/status >> overlaps; done; echo $ZKR_FENCING_TOKEN >> started; exec sleep 100`)
	w.awaitContenders("/l", 2)
	beganAt := time.Now()
	how.begin(w, leader)
	w.eventually(func() bool {
		if ended == 0 && !isAlive(pid) {
			ended = time.Since(beganAt)
		}
		if started == 0 && len(w.lines("started")) == 1 {
			started = time.Since(beganAt)
		}
		return ended != 0 && started != 0
	}, "the command has ended, and the successor's runs")
	if !how.overlaps {
		require.Empty(w, w.lines("overlaps"), leader.stderr.String())
	}
	require.Greater(w, atoi(w.T, w.lines("started")[0]), atoi(w.T, w.lines("tokens")[0]))
	return ended, started
}

// leadingZnode is the znode of the first contender at /l.
func (w *world) leadingZnode() string {
	w.Helper()
	znodes := w.awaitContenders("/l", 2)
	sequence := func(znode string) string { return znode[strings.LastIndexByte(znode, '-'):] }
	return slices.MinFunc(znodes, func(a, b string) int { return strings.Compare(sequence(a), sequence(b)) })
}

func (w *world) leadingSession() int64 {
	w.Helper()
	_, stat, ok := w.server.Get(w.leadingZnode())
	require.True(w, ok)
	return stat.EphemeralOwner
}

// table collects lines of parallel tests.
type table struct {
	mu    sync.Mutex // protects lines
	lines []string
}

func (a *table) add(line string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lines = append(a.lines, line)
}

func (a *table) log(t *testing.T, title string) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	slices.Sort(a.lines)
	t.Logf("%s\n%s", title, strings.Join(a.lines, "\n"))
}

// TestTransferToALowerPriorityLasts requires that the former leader takes part as the same candidate, and not as a
// newcomer with a higher priority.
func TestTransferToALowerPriorityLasts(t *testing.T) {
	w := newWorld(t)
	leader := w.start("elect", "--priority", "5", "--id", "high", "/l", "--", "sh", "-c", "echo >> high; exec sleep 100")
	w.eventually(func() bool { return len(w.lines("high")) == 1 }, "the leader's command runs")
	w.start("elect", "--priority", "1", "--id", "low", "/l", "--", "sh", "-c", "echo >> low; sleep 8; echo >> lasted; exec sleep 100")
	w.awaitContenders("/l", 2)
	require.Equal(t, 0, w.run("elect", "--transfer", "/l", "low").code)
	w.eventually(func() bool { return len(w.lines("lasted")) == 1 }, "the lower priority leads for longer than a newcomer waits")
	require.Len(t, w.lines("high"), 1)
	require.Contains(t, leader.stderr.String(), "lock given up: ")
	require.Contains(t, leader.stderr.String(), "another candidate is to lead")
}
