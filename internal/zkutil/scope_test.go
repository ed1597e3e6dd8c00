package zkutil

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A scope is found by those alone who are called, in their goroutine, by a function that runs
// inside it.
func TestScopes(t *testing.T) {
	for _, number := range []scope{1, 2, 3, 4, 5, 16, 64, 255, 256, 1 << 20, 1<<32 - 1} {
		others := []scope{number + 1, number * 4, number/4 + 7, number ^ 1<<31, 0}
		require.False(t, number.isOnStack())
		runUserCode(func() {
			require.True(t, number.isOnStack())
			var deep func(n int)
			deep = func(n int) {
				if n > 0 {
					deep(n - 1)
					return
				}
				require.True(t, number.isOnStack(), "below many frames")
			}
			deep(300)
			for _, other := range others {
				require.False(t, other.isOnStack(), "%d for %d", other, number)
				runUserCode(func() {
					require.True(t, other == 0 || other.isOnStack())
					require.True(t, number.isOnStack(), "further out")
				}, other)
				require.False(t, other.isOnStack())
			}
			inside := make(chan bool)
			go func() { inside <- number.isOnStack() }() // ends with its answer, which is awaited here
			require.False(t, <-inside, "a goroutine that it has started")
		}, number)
		require.False(t, number.isOnStack(), "after it")
	}
}

func TestScopesOfSessionsAndCandidates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		one, two := connect(t, srv.config(6*time.Second)), connect(t, srv.config(6*time.Second))
		a, b := NewCandidate(mutexOn(one, "/a"), nil), NewCandidate(mutexOn(one, "/b"), nil)
		all := func() []bool {
			return []bool{one.scope.isOnStack(), two.scope.isOnStack(), a.scope.isOnStack(), b.scope.isOnStack()}
		}
		seen := make(chan []bool, 1)
		look := func() { seen <- all() }
		one.Callbacks().Post(look)
		require.Equal(t, []bool{true, false, false, false}, <-seen)
		a.Callbacks().Post(look)
		require.Equal(t, []bool{true, false, true, false}, <-seen)
		require.NoError(t, b.Call(func() error { look(); return nil }, nil))
		require.Equal(t, []bool{true, false, false, true}, <-seen)
		two.Callbacks().Post(func() {
			_ = a.Call(func() error { look(); return nil }, nil) // in a goroutine of its own
		})
		require.Equal(t, []bool{true, false, true, false}, <-seen)
		require.Equal(t, make([]bool, 4), all())
	})
}

// The stack of a panic has the user's frames, and none of scopes.
func TestStackOfAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		c := NewCandidate(mutexOn(connect(t, srv.config(6*time.Second)), "/a"), nil)
		var stack string
		err := c.Call(func() error { panic(errBroken) }, func(value any, trace []byte) error {
			stack = string(trace)
			return value.(error)
		})
		require.Equal(t, errBroken, err)
		require.Contains(t, stack, "TestStackOfAPanic.func1.1")
		require.NotContains(t, stack, "digit")
		require.NotContains(t, stack, "scope.go")
	})
}

// A panic in a callback that Close does not wait for any more is logged all the same.
func TestPanicAfterCloseIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		var log syncBuffer
		cfg := srv.config(6 * time.Second)
		cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
		s, err := Connect(t.Context(), cfg)
		require.NoError(t, err)
		hang := make(chan struct{})
		s.Callbacks().Post(func() { <-hang; panic("too late") })
		require.ErrorContains(t, s.Close(), "a callback is still running")
		close(hang)
		require.NoError(t, s.Close())
		require.Contains(t, log.String(), "level=ERROR")
		require.Contains(t, log.String(), "too late")
	})
}

// Without a logger the program's default is used, as it is when something is logged.
func TestDefaultLogger(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	synctest.Test(t, func(t *testing.T) {
		srv := newEnsemble(t)
		cfg := srv.config(6 * time.Second)
		cfg.Logger = nil
		s := connect(t, cfg)
		var log bytes.Buffer
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		s.Log(slog.LevelError, "after Connect", "err", errors.New("cause"))
		synctest.Wait()
		require.Contains(t, log.String(), `msg="after Connect" err=cause`)
	})
}
