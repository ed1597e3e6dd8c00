package slowdisk_test

import (
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/slowdisk"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(ensemble.Main(m)) }

// A commit of three servers takes one fsync, or two if it has to wait for the previous one.
func TestCommitsTakeTheConfiguredTime(t *testing.T) {
	cfg := ensemble.Config{Nodes: 3, Properties: map[string]string{"syncLimit": "20"}}
	require.NoError(t, slowdisk.Install(t.Context(), &cfg))
	e := ensemble.New(t, cfg)
	conn := testkit.Conn(t, e.Servers(), 10*time.Second)
	_, err := conn.Create("/commits", nil, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	for _, delay := range []time.Duration{0, 500 * time.Millisecond, time.Second, 0} {
		require.NoError(t, slowdisk.Slow(t.Context(), e, delay))
		var took []time.Duration
		for range 5 {
			begun := time.Now()
			_, err := conn.Set("/commits", nil, -1)
			require.NoError(t, err)
			took = append(took, time.Since(begun))
		}
		t.Logf("fsync %v: commits took %v", delay, took)
		require.GreaterOrEqual(t, slices.Min(took[1:]), delay, "the first may have begun before")
		require.Less(t, slices.Min(took), 2*delay+time.Second)
	}
}
