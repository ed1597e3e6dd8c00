package testkit_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// hangEnv makes TestBubbleEndsAHang the test that hangs, in a separate process.
const hangEnv = "ZKRECIPES_TEST_HANGS"

// A test that waits for an event that never happens ends the test binary after the limit of virtual time, which is seconds of
// real time. The report names the test and shows where it waits.
func TestBubbleEndsAHang(t *testing.T) {
	if os.Getenv(hangEnv) != "" {
		testkit.Bubble(t, hang)
		return
	}
	run := exec.CommandContext(testkit.Context(t), os.Args[0], "-test.run=^TestBubbleEndsAHang$")
	run.Env = append(os.Environ(), hangEnv+"=1")
	output, err := run.CombinedOutput()
	require.ErrorAs(t, err, new(*exec.ExitError), "%s", output)
	require.Contains(t, string(output), "panic: TestBubbleEndsAHang hangs: it has not ended after 3h0m0s of virtual time")
	_, report, _ := strings.Cut(string(output), "Its goroutines:")
	report, _, _ = strings.Cut(report, "\n\ngoroutine ")
	stacks := strings.Split(report, " × ")[1:]
	first := stacks[0]
	require.Contains(t, first, "chan receive")
	require.Contains(t, first, "testkit_test.hang bubble_test.go:", "the test itself comes first")
	require.Contains(t, report, "session.(*keeper).keep keeper.go:", "and the others of its bubble")
	require.NotContains(t, report, "testing.", "without the frames of the standard library")
}

// hang waits for a lease that is never released, beside a client with heartbeats.
func hang(t *testing.T) {
	t.Helper()
	m, err := mutex.New(testclient.ConnectSettled(t, zktest.NewServer(t)), "/locks/a")
	require.NoError(t, err)
	lease, err := m.Acquire(t.Context())
	require.NoError(t, err)
	<-lease.Revoked()
}

// A test that ends before the limit is not disturbed, nor is one that declares a longer time.
func TestBubbleWithinItsLimit(t *testing.T) {
	testkit.Bubble(t, func(*testing.T) { sleep(testkit.VirtualLimit - time.Nanosecond) })
	testkit.BubbleFor(t, 24*time.Hour, func(*testing.T) { sleep(24*time.Hour - time.Nanosecond) })
	testkit.Bubble(t, func(t *testing.T) {
		t.Cleanup(func() { sleep(testkit.VirtualLimit - time.Nanosecond) })
	})
}

func sleep(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}
