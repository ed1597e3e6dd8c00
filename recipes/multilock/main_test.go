package multilock_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // where clients without a logger log
	goleak.VerifyTestMain(m)
}

// paths that the tests contend for, in the order of their names.
var all = []string{"/locks/a", "/locks/b", "/locks/c"}

// mutexes returns the multilock of a client on all paths.
func mutexes(b *bubble.Bubble, client *recipes.Client) *multilock.InterProcessMultiLock {
	b.Helper()
	m, err := multilock.NewMutexes(client, all)
	require.NoError(b, err)
	return m
}

func mutexOn(b *bubble.Bubble, client *recipes.Client, path string) *mutex.InterProcessMutex {
	b.Helper()
	m, err := mutex.New(client, path)
	require.NoError(b, err)
	return m
}

func rwlockOn(b *bubble.Bubble, client *recipes.Client, path string) *rwlock.InterProcessReadWriteLock {
	b.Helper()
	l, err := rwlock.New(client, path)
	require.NoError(b, err)
	return l
}

// held are the paths that have a contender.
func held(b *bubble.Bubble) (held []string) {
	for _, path := range all {
		if len(b.Srv.Children(path)) > 0 {
			held = append(held, path)
		}
	}
	return held
}

// requireEmptyBudget requires that nothing of a client takes room in its session.
func requireEmptyBudget(b *bubble.Bubble, client *recipes.Client) {
	b.Helper()
	s, _, err := recipe.Attach(client, "/")
	require.NoError(b, err)
	require.Zero(b, s.Budget().Usage())
}
