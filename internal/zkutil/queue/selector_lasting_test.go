package queue_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/elections"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// No candidate leads behind a znode that is not ephemeral. The selector next to it reports that once, to the handler or to
// the log.
func TestSelectorReportsAZnodeThatIsNotEphemeral(t *testing.T) {
	for name, hasHandler := range map[string]bool{"handler": true, "log": false} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv, log := zktest.NewServer(t), &testkit.Log{}
				const lasting = elections.Path + "/lock-0000000000"
				srv.Put(lasting, nil)
				var told []error
				var opts []selector.Option
				if hasHandler {
					opts = append(opts, selector.WithErrorHandler(func(err error) { told = append(told, err) }))
				}
				client := testclient.ConnectSettled(t, srv, recipes.WithLogger(log.Logger(slog.LevelError)))
				s := elections.StartSelector(t, client, elections.Idle, opts...)
				for range 3 { // other looks at the queue
					srv.Disconnect(elections.SessionOf(client))
					bubble.Pass(time.Minute)
				}
				lines := log.Take()
				if hasHandler {
					require.Len(t, told, 1)
					require.ErrorIs(t, told[0], recipes.ErrNotEphemeral)
					require.Empty(t, lines)
				} else {
					require.Equal(t, []string{`level=ERROR msg="leader selector failed" path=` + elections.Path +
						` err="selector: join ` + elections.Path + `: behind a znode that is not ephemeral: ` + lasting + `"`}, lines)
				}
				leader, err := s.Leader(t.Context())
				require.NoError(t, err)
				require.True(t, leader.NotEphemeral)
				srv.Delete(lasting)
				bubble.Pass(time.Second)
				require.True(t, s.HasLeadership())
			})
		})
	}
}
