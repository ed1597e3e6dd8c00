package election_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/election"
)

func TestScopesOfSessionsAndCandidates(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		one, two := fixture.Connect(t, srv.Config(6*time.Second)), fixture.Connect(t, srv.Config(6*time.Second))
		a, b := election.NewCandidate(fixture.MutexOn(one, "/a").Queue, nil), election.NewCandidate(fixture.MutexOn(one, "/b").Queue, nil)
		all := func() []bool {
			return []bool{one.Scope().IsOnStack(), two.Scope().IsOnStack(), a.IsInside(), b.IsInside()}
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
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		c := election.NewCandidate(fixture.MutexOn(fixture.Connect(t, srv.Config(6*time.Second)), "/a").Queue, nil)
		var stack string
		err := c.Call(func() error { panic(fixture.ErrBroken) }, func(value any, trace []byte) error {
			stack = string(trace)
			return value.(error)
		})
		require.Equal(t, fixture.ErrBroken, err)
		require.Contains(t, stack, "TestStackOfAPanic.func1.1")
		require.NotContains(t, stack, "digit")
		require.NotContains(t, stack, "scope.go")
	})
}
