package rwlock_test

import (
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // where clients without a logger log
	goleak.VerifyTestMain(m)
}

// lock is the path that the tests contend for.
const lock = "/locks/a"

// lockOf returns the two locks of a client on the path.
func lockOf(b *bubble.Bubble, client *recipes.Client, opts ...rwlock.Option) (read, write *rwlock.Lock) {
	b.Helper()
	l, err := rwlock.New(client, lock, opts...)
	require.NoError(b, err)
	return l.ReadLock(), l.WriteLock()
}

// paths are those of participants.
func paths(participants []recipes.Participant) []string {
	var all []string
	for _, p := range participants {
		all = append(all, p.Path)
	}
	return all
}
