package rwlock_test

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/recipes"
)

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // where clients without a logger log
	goleak.VerifyTestMain(m)
}

// paths are those of participants.
func paths(participants []recipes.Participant) []string {
	var all []string
	for _, p := range participants {
		all = append(all, p.Path)
	}
	return all
}
