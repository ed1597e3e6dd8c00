package mutex_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// Participants are in queue order, the holder first, each with its own id.
func TestParticipants(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		client := f.Client()
		ids := []string{"holder", "", "бука 🔒", "\x00\xff", strings.Repeat("long", 16<<8), "", "last"}
		holder := bubble.Acquire(f.T, f.Mutex(client, mutex.WithID(ids[0])).Acquire)
		var waiters []<-chan bubble.Outcome[*recipes.Lease]
		for _, id := range ids[1:] {
			waiters = append(waiters, f.Waiting(f.Context(), f.Mutex(client, mutex.WithID(id))))
		}
		reader := f.Mutex(f.Client())
		for len(ids) > 0 {
			participants, err := reader.Participants(f.Context())
			require.NoError(f, err)
			require.Len(f, participants, len(ids))
			for i, p := range participants {
				require.Equal(f, ids[i], p.ID)
				require.Equal(f, i == 0, p.Leader)
				require.True(f, strings.HasPrefix(p.Path, locks.Path+"/_c_"), p.Path)
				data, _, exists := f.Srv.Get(p.Path)
				require.True(f, exists)
				require.Equal(f, ids[i], string(data))
			}
			require.Equal(f, holder.Path(), participants[0].Path)
			require.NoError(f, holder.Release())
			if ids = ids[1:]; len(ids) > 0 {
				holder, waiters = bubble.Granted(f, waiters[0]), waiters[1:]
			}
		}
		participants, err := reader.Participants(f.Context())
		require.NoError(f, err)
		require.Empty(f, participants, "an empty parent has none")
	})
}
