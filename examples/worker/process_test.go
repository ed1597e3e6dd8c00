//go:build unix

package main

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// slack is what a busy machine may add to a time.
const slack = 10 * time.Second

// Session timeouts: a short one where a session has to expire, and a long one where none may, also on a busy machine.
const (
	shortSession = 3 * time.Second
	longSession  = 10 * time.Second // which a real server grants with its tick of half a second
)

// newTour starts workers that are processes of their own: ann, bob and cid.
func newTour(t *testing.T, servers string, session time.Duration) (*tour, *store) {
	t.Helper()
	return newTourOf(t, servers, session, 400*time.Millisecond, "ann", "bob", "cid")
}

func newTourOf(t *testing.T, servers string, session, every time.Duration, names ...string) (*tour, *store) {
	t.Helper()
	var said output
	tr := &tour{
		o: options{
			zk: servers, db: filepath.Join(t.TempDir(), "worker.db"),
			every: every, work: every * 3 / 8, sessionTimeout: session,
		},
		out: &said, stderr: &said, began: time.Now(), events: newJournal(), workers: map[string]*process{},
	}
	t.Cleanup(func() {
		require.NoError(t, tr.close())
		t.Log(said.String())
	})
	for _, name := range names {
		require.NoError(t, tr.start(t.Context(), name))
	}
	s, err := openStore(t.Context(), tr.o.db)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return tr, s
}

func embedded(t *testing.T) string {
	t.Helper()
	return zktest.NewServer(t).Addr()
}

// requireInOrder checks the invariants: run numbers have no gap and no duplicate, and no term writes after a later
// one.
func requireInOrder(t *testing.T, s *store) {
	t.Helper()
	runs, err := s.lastRuns(t.Context(), allRuns)
	require.NoError(t, err)
	require.NotEmpty(t, runs)
	require.NoError(t, report{runs: runs, stale: 1}.fault())
}

func TestSigtermHandsOverAtOnce(t *testing.T) { testSigterm(t, embedded(t)) }

func testSigterm(t *testing.T, servers string) {
	t.Helper()
	tr, s := newTour(t, servers, longSession)
	require.NoError(t, tr.awaitRuns(t.Context()))
	victim := tr.workers[tr.leader]
	require.NoError(t, tr.takeAway(t.Context(), syscall.SIGTERM, "test"))

	h := tr.handovers[0]
	took := h.led.Sub(h.at)
	t.Logf("the next leader led %v after SIGTERM, and ran the job after %v", took, h.firstRun.Sub(h.at))
	require.Less(t, took, tr.o.sessionTimeout/2, "no session had to expire")
	require.Equal(t, 0, victim.cmd.ProcessState.ExitCode(), "it has ended in order")
	requireInOrder(t, s)
}

// A worker stopped in the middle of a run interrupts the run and records that.
func TestSigtermInTheMiddleOfARun(t *testing.T) {
	tr, s := newTour(t, embedded(t), longSession)
	ctx := t.Context()
	begun, err := tr.until(ctx, func(e event) bool { return e.Msg == saysBegins })
	require.NoError(t, err)
	victim := tr.leader
	require.NoError(t, tr.takeAway(ctx, syscall.SIGTERM, "test"))
	require.NoError(t, tr.awaitRuns(ctx))
	runs, err := s.lastRuns(ctx, allRuns)
	require.NoError(t, err)
	for _, r := range runs {
		if r.Number == begun.Run && r.Outcome != outcomeDone { // the stop may be too late
			require.Equal(t, []string{outcomeStopped, victim}, []string{r.Outcome, r.Leader})
		}
	}
	requireInOrder(t, s)
}

func TestSigkillHandsOverAfterTheSession(t *testing.T) { testSigkill(t, embedded(t), tick) }

func testSigkill(t *testing.T, servers string, tick time.Duration) {
	t.Helper()
	tr, s := newTour(t, servers, shortSession)
	require.NoError(t, tr.awaitRuns(t.Context()))
	require.NoError(t, tr.takeAway(t.Context(), syscall.SIGKILL, "test"))

	h := tr.handovers[0]
	took := h.firstRun.Sub(h.at)
	t.Logf("the next leader's first run began %v after SIGKILL", took)
	require.LessOrEqual(t, took, tr.o.sessionTimeout+tick+slack)
	require.GreaterOrEqual(t, took, tr.o.sessionTimeout*2/3, "a session lives for its timeout from its last request")
	requireInOrder(t, s)
}

func TestSigstopEndsInARefusedWrite(t *testing.T) { testSigstop(t, embedded(t), tick) }

func testSigstop(t *testing.T, servers string, tick time.Duration) {
	t.Helper()
	tr, s := newTour(t, servers, shortSession)
	ctx := t.Context()
	require.NoError(t, tr.pauseLeader(ctx))
	h := tr.handovers[0]
	t.Logf("the next leader's first run began %v after SIGSTOP", h.firstRun.Sub(h.at))
	require.LessOrEqual(t, h.firstRun.Sub(h.at), tr.o.sessionTimeout+tick+slack)

	// The worker notices, and knows until when its term was valid.
	ends, _, err := tr.events.await(ctx, 0, func(e event) bool { return e.Worker == h.from && e.Msg == saysEnds })
	require.NoError(t, err)
	require.Contains(t, ends.Err, "session lost")
	require.True(t, ends.Valid.Before(h.led), "until %v, and the next one led at %v", ends.Valid, h.led)
	status, body := get(ctx, t, tr.workers[h.from].url+"/leader")
	require.Equal(t, http.StatusServiceUnavailable, status)
	require.Equal(t, "not the leader\n", body)
	status, body = get(ctx, t, tr.workers[h.to].url+"/leader")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "leader\n", body)

	// The worker queues again, and leads in its turn.
	for tr.leader != h.from {
		require.NoError(t, tr.takeAway(ctx, syscall.SIGTERM, "test"))
	}
	require.NoError(t, tr.awaitRuns(ctx))
	requireInOrder(t, s)
}

func get(ctx context.Context, t *testing.T, url string) (status int, body string) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	require.NoError(t, err)
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, response.Body.Close()) }()
	all, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(all)
}
