package main_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The leadership goes to the candidate asked for. The leader's command ends, and its zkr stands again.
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

// Whoever has no priority is not asked.
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
