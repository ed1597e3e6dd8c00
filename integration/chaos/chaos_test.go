package chaos_test

import (
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
				Clients: 4, Timeout: 4 * time.Second,
			})
			require.NoError(t, err)
			v := chaos.Judge(o.History)
			linear := chaos.Linearize(o.History)
			report(t, seed, o, v)
			if *out != "" || len(v.Violations)+len(linear) > 0 || o.Settled == 0 || len(o.Left) > 0 {
				keep(t, o.History, v)
			}
			require.GreaterOrEqual(t, o.Rate, 20.0, "void: too little happened before the first fault")
			require.Empty(t, v.Violations)
			require.Empty(t, linear)
			require.Positive(t, o.Settled, "somebody never got the lock again")
			require.LessOrEqual(t, o.Settled, 30*time.Second, "until everybody had the lock once more")
			require.Empty(t, o.Left)
		})
	}
}

// The same faults, tried on what people use today. The figures are reported, not judged.
func TestChaosPeers(t *testing.T) {
	for _, peer := range []chaos.Peer{chaos.ZKLock, chaos.Curator} {
		t.Run(string(peer), func(t *testing.T) {
			o, err := chaos.Run(t.Context(), chaos.Plan{
				Seed: max(*seed, 1), Length: time.Duration(*minutes * float64(time.Minute) / 2),
				Clients: 4, Timeout: 4 * time.Second, Peer: peer,
			})
			require.NoError(t, err)
			r := chaos.JudgePeer(o.History)
			require.Positive(t, r.Leases)
			t.Logf("%s, seed %d: %d faults, %.0f leases a second before the first, %d leases, overlaps by excuse %v, %d lost updates, failures %v, everybody served after %v (0: never), left %v",
				peer, max(*seed, 1), len(o.History.Faults), o.Rate, r.Leases, r.Overlaps, r.LostUpdates, r.Failures, o.Settled, o.Left)
		})
	}
}

func report(t *testing.T, seed uint64, o *chaos.Outcome, v *chaos.Verdict) {
	t.Helper()
	kinds := make(map[string]int)
	for _, f := range o.History.Faults {
		kinds[f.Kind]++
	}
	var s strings.Builder
	fmt.Fprintf(&s, "chaos: seed %d\n", seed)
	fmt.Fprintf(&s, "  before the first fault     %.0f leases a second\n", o.Rate)
	fmt.Fprintf(&s, "  faults                     %d of %d kinds\n", len(o.History.Faults), len(kinds))
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprintf(&s, "    %-26s %d\n", kind, kinds[kind])
	}
	fmt.Fprintf(&s, "  attempts, leases           %d, %d\n", v.Attempts, v.Leases)
	fmt.Fprintf(&s, "  ends of leases             %v\n", v.Causes)
	fmt.Fprintf(&s, "  writes, refused as stale   %d, %d\n", v.Wrote, v.Refused)
	fmt.Fprintf(&s, "  attempts that failed       %v\n", v.Failures)
	fmt.Fprintf(&s, "  overlaps nobody could see  %v\n", v.Excused)
	fmt.Fprintf(&s, "  nearest loss to a grant    %v\n", v.Nearest)
	fmt.Fprintf(&s, "  everybody served after     %v\n", o.Settled)
	fmt.Fprintf(&s, "  violations                 %d\n", len(v.Violations))
	t.Log("\n" + s.String())
}

// keep writes down what can be looked at afterwards.
func keep(t *testing.T, h *chaos.History, v *chaos.Verdict) {
	t.Helper()
	dir := *out
	if dir == "" {
		var err error
		dir, err = os.MkdirTemp("", "chaos-") //nolint:usetesting // it has to outlive the test
		require.NoError(t, err)
	}
	history, err := json.Marshal(h)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "history.json"), history, 0o600))
	if len(v.Violations) > 0 {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "timeline.svg"), chaos.Timeline(h, v.FirstPath, v.First), 0o600))
	}
	t.Logf("history and timeline are in %s", dir)
}
