package chaos_test

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/integration/chaos"
	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/judge"
)

var (
	seed    = flag.Uint64("seed", 0, "of the faults; 0: one that is fixed, and a fresh one")
	minutes = flag.Float64("minutes", 5, "of faults, in all")
	out     = flag.String("out", "", "`folder` for the history, and for the picture of a failure (default a temporary one, after a failure)")
)

func TestMain(m *testing.M) {
	if setup, ok := os.LookupEnv(chaos.WorkerVariable); ok {
		os.Exit(chaos.RunWorker(setup))
	}
	goleak.VerifyTestMain(ensemble.Main(m))
}

// Faults of every kind, and nothing that was promised is broken.
func TestChaos(t *testing.T) {
	seeds := []uint64{*seed}
	if *seed == 0 {
		seeds = []uint64{1, rand.Uint64()}
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			o, err := chaos.Run(t.Context(), chaos.Plan{
				Seed: seed, Length: time.Duration(*minutes * float64(time.Minute) / float64(len(seeds))),
				Clients: 4,
			})
			if o == nil {
				require.NoError(t, err)
			}
			where := &place{}
			defer keep(t, o, where)
			v := chaos.Judge(o.History)
			report(t, seed, o, v)
			where.path, where.at = v.FirstPath, v.First
			linear := chaos.Linearize(o.History)
			for path := range linear {
				where.path = cmp.Or(where.path, path)
			}
			requireServed(t, o, v)
			require.NoError(t, err)
			require.GreaterOrEqual(t, o.Rate, float64(chaos.VoidBelow), "void: too little happened before the first fault")
			require.Positive(t, v.Quiet, "void: somebody was never left in peace")
			require.Positive(t, v.Views, "void: no server has shown what it has")
			require.NotEmpty(t, o.Former, "void: the servers were never restored from a backup")
			require.Empty(t, v.Violations)
			require.Empty(t, linear)
			require.Empty(t, o.Left)
			for _, what := range []chaos.What{chaos.Reacquired, chaos.Asked, chaos.Led, chaos.Wrote, chaos.Refused, chaos.Marked, chaos.Unmarked, chaos.ShutDown} {
				require.Positive(t, v.Happened[what], what)
			}
			for _, path := range chaos.Paths() {
				require.Greater(t, v.Leases[path], 10, path)
			}
		})
	}
}

// requireServed requires that each contender got the lock once more in time, unless the leader showed deleted znodes, which no client can
// find out.
func requireServed(t *testing.T, o *chaos.Outcome, v *chaos.Verdict) {
	t.Helper()
	for _, s := range o.Stuck {
		require.True(t, v.HasStopped(s.Leader, s.Since), s.Text)
	}
	if len(o.Stuck) > chaos.LeadersDeposed {
		t.Logf("each leader showed deleted znodes: %v", o.NotAll)
		return
	}
	require.NoError(t, o.NotAll)
	if len(o.Stuck) == 0 {
		limit := v.SettlesIn(o.Healed) + o.History.StarvedWithin(o.Healed, o.Healed+int64(o.Settled)) // on a busy machine a handover takes a second
		require.LessOrEqual(t, o.Settled, limit, "until each contender had the lock once more")
	}
}

// The same faults, tried on a lock alone, whose holders have no tokens: ours, and what
// people use today. The figures of the latter are reported, not judged.
func TestChaosPeers(t *testing.T) {
	for _, peer := range []chaos.Peer{chaos.Mutex, chaos.ZKLock, chaos.Curator} {
		t.Run(string(peer), func(t *testing.T) {
			o, err := chaos.Run(t.Context(), chaos.Plan{
				Seed: max(*seed, 1), Length: time.Duration(*minutes * float64(time.Minute) / 3),
				Clients: 4, Peer: peer,
			})
			require.NoError(t, err)
			r := chaos.JudgePeer(o.History)
			defer keep(t, o, &place{chaos.Paths()[0], r.At})
			t.Logf("%s, seed %d: %d faults, %.0f leases a second before the first, %d leases, overlaps by excuse %v, %d lost updates, failures %v, everybody served after %v (0: never), left %v",
				peer, max(*seed, 1), len(o.History.Faults), o.Rate, r.Leases, r.Overlaps, r.LostUpdates, r.Failures, o.Settled, o.Left)
			for _, s := range o.Stuck {
				t.Logf("some contenders were not served in time: %s", s.Text)
			}
			require.Positive(t, r.Leases)
			if peer == chaos.Mutex {
				require.Zero(t, r.Overlaps[judge.None])
				require.NoError(t, o.NotAll)
			}
		})
	}
}

func report(t *testing.T, seed uint64, o *chaos.Outcome, v *chaos.Verdict) {
	t.Helper()
	kinds, missed := make(map[string]int), make(map[string]int)
	for _, f := range o.History.Faults {
		if kinds[f.Kind]++; f.Missed {
			missed[f.Kind]++
		}
	}
	var s strings.Builder
	fmt.Fprintf(&s, "chaos: seed %d\n", seed)
	fmt.Fprintf(&s, "  before the first fault     %.0f leases a second\n", o.Rate)
	fmt.Fprintf(&s, "  faults                     %d of %d kinds\n", len(o.History.Faults), len(kinds))
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&s, "    %-33s %d", kind, kinds[kind]-missed[kind])
		if n := missed[kind]; n > 0 {
			fmt.Fprintf(&s, ", and %d that hit nothing", n)
		}
		s.WriteByte('\n')
	}
	if o.NoNetem != nil {
		fmt.Fprintf(&s, "    not here: slow server     %v\n", o.NoNetem)
	}
	if o.NoDisks != nil {
		fmt.Fprintf(&s, "    not here: slow fsync      %v\n", o.NoDisks)
	}
	fmt.Fprintf(&s, "    not here: clock jump      all containers share one clock\n")
	stalls, sum := o.History.StalledByItself()
	fmt.Fprintf(&s, "  quorum stalled by itself   %d times, %v in all\n", stalls, sum)
	fmt.Fprintf(&s, "  attempts, given up         %d, by %v\n", v.Happened[chaos.Called], v.GivenUp)
	total := 0
	for _, path := range slices.Sorted(maps.Keys(v.Leases)) {
		total += v.Leases[path]
	}
	fmt.Fprintf(&s, "  leases                     %d: %v\n", total, v.Leases)
	fmt.Fprintf(&s, "  ends of leases             %v\n", v.Causes)
	fmt.Fprintf(&s, "  acquired again             %d\n", v.Happened[chaos.Reacquired])
	fmt.Fprintf(&s, "  revocations heard          %d\n", v.Happened[chaos.Asked])
	fmt.Fprintf(&s, "  asked and led              %d\n", v.Happened[chaos.Led])
	fmt.Fprintf(&s, "  shut down with work        %d\n", v.Happened[chaos.ShutDown])
	fmt.Fprintf(&s, "  ticks run                  %d\n", v.Happened[chaos.Ticked])
	fmt.Fprintf(&s, "  row: written, refused      %d, %d\n", v.Happened[chaos.Wrote], v.Happened[chaos.Refused])
	fmt.Fprintf(&s, "  znode: written, refused    %d, %d\n", v.Happened[chaos.Marked], v.Happened[chaos.Unmarked])
	fmt.Fprintf(&s, "  overlaps nobody could see  %v\n", v.Excused)
	fmt.Fprintf(&s, "  views of the servers       %d, with %d znodes that were gone, or never there; %d amid faults\n", v.Views, len(v.Ghosts), v.Glances)
	for _, g := range v.Ghosts {
		fmt.Fprintf(&s, "    server %d, of processes %v: %s, gone for %v, %s\n", g.View.Server, g.View.Procs, g.Path, o.History.GoneFor(g), g.End)
	}
	fmt.Fprintf(&s, "  znodes in dispute          %d\n", len(v.Disputed))
	for l, shown := range v.Disputed {
		fmt.Fprintf(&s, "    %s, token %d: %s\n", l.Path, l.Token, shown)
	}
	fmt.Fprintf(&s, "  servers left, for ghosts   %d\n", v.Happened[chaos.Haunted])
	for _, e := range o.History.Events {
		if e.What == chaos.Haunted {
			fmt.Fprintf(&s, "    by %s: %s\n", e.By, e.Znode)
		}
	}
	fmt.Fprintf(&s, "  left in peace for          %v, each process once at least\n", v.Quiet)
	fmt.Fprintf(&s, "  nearest expiry to a grant  %v\n", v.Nearest)
	fmt.Fprintf(&s, "  everybody served after     %v\n", o.Settled)
	for _, stuck := range o.Stuck {
		fmt.Fprintf(&s, "    and not while server %d led\n", stuck.Leader)
	}
	fmt.Fprintf(&s, "  violations                 %d\n", len(v.Violations))
	t.Log("\n" + s.String())
}

// place is what a picture is about.
type place struct {
	path string
	at   int64 // on the monotonic clock; 0: at the end
}

// keep writes files for the analysis of a failure, or on request.
func keep(t *testing.T, o *chaos.Outcome, where *place) {
	t.Helper()
	h := o.History
	dir := *out
	switch {
	case dir == "" && !t.Failed():
		return
	case dir == "":
		var err error
		dir, err = os.MkdirTemp("", "chaos-") //nolint:usetesting // it has to outlive the test
		require.NoError(t, err)
	}
	dir = filepath.Join(dir, filepath.FromSlash(t.Name()))
	require.NoError(t, os.MkdirAll(dir, 0o700))
	history, err := json.Marshal(h)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "history.json"), history, 0o600))
	path, at := cmp.Or(where.path, chaos.Paths()[0]), where.at
	if at == 0 && len(h.Events) > 0 {
		at = h.Events[len(h.Events)-1].At
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "timeline.svg"), chaos.Timeline(h, path, at), 0o600))
	keepLogs(t, dir, o.Logs)
	for i, logs := range o.Former {
		keepLogs(t, filepath.Join(dir, fmt.Sprintf("before-restore-%d", i+1)), logs)
	}
	t.Logf("history, timeline and the servers' logs are in %s", dir)
}

// keepLogs writes the logs of the servers.
func keepLogs(t *testing.T, dir string, all []chaos.ServerLogs) {
	t.Helper()
	for i, logs := range all {
		of := filepath.Join(dir, fmt.Sprintf("server-%d", i))
		require.NoError(t, os.MkdirAll(of, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(of, "console.log"), []byte(logs.Console), 0o600))
		for name, file := range logs.Transactions {
			require.NoError(t, os.WriteFile(filepath.Join(of, name+".gz"), file, 0o600))
		}
	}
}
