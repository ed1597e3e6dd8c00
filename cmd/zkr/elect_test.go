//go:build linux

package main_test

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

func TestElectRunsWhileItLeads(t *testing.T) {
	w := newWorld(t)
	lease := w.hold("/l", "first")
	r := w.start("elect", "/l", "--", "sh", "-c", "echo $ZKR_FENCING_TOKEN; exit 5")
	w.awaitContenders("/l", 2)
	require.Empty(t, r.stdout.String())
	require.NoError(t, lease.Release())
	require.Equal(t, 5, r.code())
	require.Greater(t, r.stdout.String(), itoa(lease.FencingToken()))
	require.Empty(t, w.server.Children("/l"))
}

// After a loss the group is killed, and the process stands again, with another token.
func TestElectStandsAgainAfterALoss(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "ZKR_SESSION_TIMEOUT="+shortSession.String())
	r := w.start("elect", "--grace", "100ms", "/l", "--", "sh", "-c",
		`echo $ZKR_FENCING_TOKEN >> tokens; echo $$ >> pids; [ $(wc -l < tokens) = 3 ] && exit 9; trap '' TERM; while :; do sleep 0.02; done`)
	for n := 1; n < 3; n++ {
		w.eventually(func() bool { return len(w.lines("pids")) == n }, "it leads")
		znode := w.awaitContenders("/l", 1)[0]
		if n == 1 {
			w.server.Delete(znode)
		} else {
			w.server.Expire(w.owner())
		}
	}
	require.Equal(t, 9, r.code(), r.stderr.String())
	tokens := w.lines("tokens")
	require.Len(t, tokens, 3)
	require.IsIncreasing(t, tokens)
	for _, pid := range w.lines("pids") {
		require.False(t, isAlive(int(atoi(t, pid))))
	}
}

// It also resumes after a silence of the servers.
func TestElectAfterASilence(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "ZKR_SESSION_TIMEOUT="+shortSession.String())
	r := w.start("elect", "--grace", "100ms", "/l", "--", "sh", "-c", `echo $$ >> pids; [ $(wc -l < pids) = 2 ] && exit 0; sleep 100`)
	w.eventually(func() bool { return len(w.lines("pids")) == 1 }, "it leads")
	owner := w.owner()
	w.server.Partition(owner)
	w.awaitDead(int(atoi(t, w.lines("pids")[0])))
	w.server.HealSessions(owner)
	require.Equal(t, 0, r.code())
}

// A revocation ends the command, whose code is that of zkr. A leader does not stand again.
func TestRevokedLeader(t *testing.T) {
	w := newWorld(t)
	r := w.start("elect", "/l", "--", "sh", "-c", "trap 'exit 8' TERM; echo > ready; while :; do sleep 0.02; done")
	w.content("ready")
	require.Equal(t, 0, w.run("revoke", "/l").code)
	require.Equal(t, 8, r.code())
	require.Empty(t, w.server.Children("/l"))
}

func TestSignalToALeader(t *testing.T) {
	w := newWorld(t)
	r := w.start("elect", "/l", "--", "sh", "-c", "echo > ready; exec sleep 100")
	w.content("ready")
	r.signal(syscall.SIGTERM)
	require.Equal(t, 128+15, r.code())
	require.Empty(t, w.server.Children("/l"))
}

// It takes part in the elections of a LeaderSelector.
func TestElectWithASelector(t *testing.T) {
	w := newWorld(t)
	r := w.start("elect", "--id", "zkr", "/l", "--", "sh", "-c", "echo > ready; while [ ! -e go ]; do sleep 0.02; done")
	w.content("ready")
	client := w.client()
	s, err := selector.New(client, "/l", nothing)
	require.NoError(t, err)
	leader, err := s.Leader(t.Context())
	require.NoError(t, err)
	require.Equal(t, "zkr", leader.ID)
	require.NoError(t, s.Start())
	w.awaitContenders("/l", 2)
	require.NoError(t, os.WriteFile(w.file("go"), nil, 0o600))
	require.Equal(t, 0, r.code())
	w.eventually(func() bool { return len(w.server.Children("/l")) == 0 }, "the selector has led")
	require.NoError(t, s.Close())
}

// A line for each change of the leader, until a signal.
func TestListenToAnElection(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "ZKR_NAMESPACE=team")
	client := w.client(recipes.WithNamespace("team"))
	r := w.start("elect", "-l", "/l")
	line := func(n int) []string {
		w.eventually(func() bool { return strings.Count(r.stdout.String(), "\n") == n }, "a line more")
		lines := strings.Split(r.stdout.String(), "\n")
		at, rest, _ := strings.Cut(lines[n-1], " ")
		when, err := time.Parse(time.RFC3339, at)
		require.NoError(t, err)
		require.WithinDuration(t, time.Now(), when, time.Minute)
		return strings.SplitAfterN(rest, " /", 2)
	}
	require.Equal(t, []string{"- -"}, line(1))
	lease := w.holdWith(client, "/l", "ann")
	require.Equal(t, []string{"ann /", strings.TrimPrefix(lease.Path(), "/team/")}, line(2))
	require.NoError(t, lease.Release())
	require.Equal(t, []string{"- -"}, line(3))
	lease = w.holdWith(client, "/l", "night shift")
	require.Equal(t, []string{`"night shift" /`, strings.TrimPrefix(lease.Path(), "/team/")}, line(4))
	r.signal(syscall.SIGINT)
	require.Equal(t, 130, r.code())
	require.Empty(t, r.stderr.String())
}

// TestListenWithoutPermission says so, where the leader will never be shown.
func TestListenWithoutPermission(t *testing.T) {
	w := newWorld(t)
	protect(w, "/secret")
	got := w.start("elect", "-l", "/secret")
	require.Equal(t, 69, got.code(), got.stdout.String())
	require.Contains(t, got.stderr.String(), "no permission to list the children of /secret")
}
