package edges_test

import (
	"bytes"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// output is a log that may be read during writes.
type output struct {
	mu  sync.Mutex // protects buf
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func (o *output) debug(handler func(*output, *slog.HandlerOptions) slog.Handler) recipes.Option {
	return recipes.WithLogger(slog.New(handler(o, &slog.HandlerOptions{Level: slog.LevelDebug - 4})))
}

func text(o *output, options *slog.HandlerOptions) slog.Handler {
	return slog.NewTextHandler(o, options)
}

// A server whose counters stand near their ends, from a snapshot. What zktest does with
// SetSequence (internal/zkutil/queue/exhausted_test.go has the details) a real one does too: it
// stays at the last number, which is never granted, and begins anew with a new parent.
func TestSequenceSaturationOnARealServer(t *testing.T) {
	t.Parallel()
	server := ensemble.New(t, ensemble.Config{
		JVMFlags: []string{"-Dznode.container.checkIntervalMs=500"},
		Files: map[string][]byte{"/data/version-2/snapshot.1": snapshot(
			counted{"/half", 1<<30 - 1}, counted{"/last", math.MaxInt32 - 2}, counted{"/over", math.MaxInt32})},
	}).Server(0)
	const warning = "sequence numbers are running out"
	var log output
	client := connect(t, server, log.debug(text))

	half := newMutex(t, client, "/half")
	lease := acquire(t, half)
	require.True(t, strings.HasSuffix(lease.Path(), "lock-1073741823"), lease.Path())
	require.NoError(t, lease.Release())
	require.NotContains(t, log.String(), warning)
	lease = acquire(t, half)
	require.NoError(t, lease.Release())
	testkit.Eventually(t, func() bool { return strings.Contains(log.String(), warning) }, "the warning")

	last := newMutex(t, client, "/last")
	first := acquire(t, last)
	require.True(t, strings.HasSuffix(first.Path(), "lock-2147483645"), first.Path())
	next := acquiring(testkit.Context(t), last) // gets the last number that means anything
	conn := stranger(t, server)
	testkit.Eventually(t, func() bool { children, _, _ := conn.Children("/last"); return len(children) == 3 }, "its znode")
	for path, calls := range map[string]map[string]call{"/last": acquisitions(), "/over": acquisitions()} {
		for op, call := range calls {
			for range 2 {
				require.ErrorIs(t, call(situation{t, testkit.Context(t), client, path, ""}), recipes.ErrSequenceExhausted, "%s %s", op, path)
			}
		}
	}
	require.NoError(t, first.Release())
	second := <-next
	require.NoError(t, second.err)
	require.True(t, strings.HasSuffix(second.lease.Path(), "lock-2147483646"), second.lease.Path())
	require.NoError(t, second.lease.Release())
	testkit.Eventually(t, func() bool { children, _, _ := conn.Children("/last"); return len(children) == 1 }, "nothing is left")

	// The remedy: no client uses the directory, and the server removes it.
	require.NoError(t, conn.Delete("/last/config", -1))
	testkit.Eventually(t, func() bool { found, _, err := conn.Exists("/last"); return err == nil && !found }, "the container is reaped")
	lease = acquire(t, last)
	require.True(t, strings.HasSuffix(lease.Path(), "lock-0000000000"), lease.Path())
	require.Greater(t, lease.FencingToken(), second.lease.FencingToken())
	require.NoError(t, lease.Release())
}
