package interop_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// attempt is a contender's wait for the lock.
type attempt struct {
	done chan struct{} // closed when the following are settled
	err  error
	at   time.Time
}

// start begins to wait. The test has to see the end of it.
func start(c contender) *attempt {
	a := &attempt{done: make(chan struct{})}
	go func() { // ends with the wait
		defer close(a.done)
		a.err = c.lock()
		a.at = time.Now()
	}()
	return a
}

// granted waits for the lock.
func (a *attempt) granted(t *testing.T, who string) {
	t.Helper()
	testkit.Receive(t, a.done, "the lock is granted to "+who)
	require.NoError(t, a.err, who)
}

// pending makes sure that the lock is not granted yet.
func (a *attempt) pending(t *testing.T, who string) {
	t.Helper()
	select {
	case <-a.done:
		require.NoError(t, a.err, who)
		require.Fail(t, "two hold the lock", who)
	default:
	}
}

// behind starts to wait, and returns once the contender watches the znode before its own, which shows that it read the
// queue.
func behind(t *testing.T, c contender, path, who string) *attempt {
	t.Helper()
	before := queue(t, path)
	last := before[len(before)-1]
	watched := watchers(t, last)
	a := start(c)
	queued(t, path, len(before)+1)
	testkit.Eventually(t, func() bool { return watchers(t, last) > watched }, who+" watches the one before it")
	a.pending(t, who)
	return a
}

// chain makes contenders of one lock queue up, one behind the other, and then passes the lock on from the first to the last.
// The path is the one on the server; check is called with all contenders in the queue.
func chain(t *testing.T, path string, members []contender, check func(nodes []string)) {
	t.Helper()
	var attempts []*attempt
	for i, c := range members {
		who := fmt.Sprintf("number %d", i)
		if i > 0 {
			attempts = append(attempts, behind(t, c, path, who))
			continue
		}
		attempts = append(attempts, start(c))
		attempts[0].granted(t, who)
		queued(t, path, 1)
	}
	check(queue(t, path))
	for i, c := range members {
		attempts[i].granted(t, fmt.Sprintf("number %d", i))
		for j := i + 1; j < len(members); j++ {
			attempts[j].pending(t, fmt.Sprintf("number %d", j))
		}
		require.NoError(t, c.unlock())
	}
	queued(t, path, 0)
}
