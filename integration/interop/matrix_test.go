package interop_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// TestMutexMatrix makes each implementation hold the lock while each other one waits for it.
func TestMutexMatrix(t *testing.T) {
	t.Parallel()
	everybody := side(t, append([]language{kazooOwn}, languages...))
	holders, waiters := everybody(), everybody()
	newcomers := everybody()
	pair := func(holder, waiter language, others []language) {
		t.Run(holder.name+" holds, "+waiter.name+" waits", func(t *testing.T) {
			t.Parallel()
			path := testkit.Path(t)
			refused := func() {
				for _, other := range others {
					got, err := newcomers[other.name].contender(t, path, "newcomer").try()
					require.NoError(t, err, other.name)
					require.False(t, got, "%s gets in", other.name)
				}
				// The newcomers' znodes are deleted, whichever client created them.
			}
			first := holders[holder.name].contender(t, path, "holder")
			second := waiters[waiter.name].contender(t, path, "waiter")
			start(first).granted(t, holder.name)
			queued(t, path, 1)
			wait := behind(t, second, path, waiter.name)
			nodes := queued(t, path, 2)
			refused()
			wait.pending(t, waiter.name)
			require.Equal(t, nodes, queue(t, path))

			require.NoError(t, first.unlock())
			wait.granted(t, waiter.name)
			require.Equal(t, nodes[1:], queue(t, path))
			refused()
			require.NoError(t, second.unlock())
			require.Empty(t, queue(t, path))
		})
	}
	for _, holder := range languages {
		for _, waiter := range languages {
			pair(holder, waiter, []language{golang, javaLang, pythonLang})
		}
	}
	// Curator ignores kazoo's own names, as TestCuratorPassesOverKazoosNames shows.
	for _, other := range []language{golang, zkLock} {
		pair(kazooOwn, other, []language{golang, kazooOwn})
		pair(other, kazooOwn, []language{golang, kazooOwn})
	}
}

// side returns a function that opens a session of each language.
func side(t *testing.T, of []language) func() map[string]session {
	t.Helper()
	return func() map[string]session {
		sessions := map[string]session{}
		for _, l := range of {
			sessions[l.name] = l.open(t, options{})
		}
		return sessions
	}
}
