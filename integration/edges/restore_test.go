package edges_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
)

// loss is a way in which servers lose the data that their clients saw.
type loss struct {
	nodes   int
	prepare func(e *ensemble.Ensemble, ctx context.Context) error // before the clients have what is lost
	lose    func(e *ensemble.Ensemble, ctx context.Context) error
}

var losses = map[string]loss{
	"one server emptied":    {1, nothing, (*ensemble.Ensemble).Wipe},
	"three servers emptied": {3, nothing, (*ensemble.Ensemble).Wipe},
	"one server restored":   {1, (*ensemble.Ensemble).Backup, restore},
	"three servers restored": {3, func(e *ensemble.Ensemble, ctx context.Context) error {
		if err := e.Backup(ctx); err != nil {
			return err
		}
		for range 2 { // otherwise the epoch after the restore would be ahead of the clients
			for i := range e.Servers() {
				if err := e.Kill(ctx, i); err != nil {
					return err
				}
			}
			for i := range e.Servers() {
				if err := e.StartNode(ctx, i); err != nil {
					return err
				}
			}
			if err := e.WaitServing(ctx); err != nil {
				return err
			}
		}
		return nil
	}, restore},
}

func restore(e *ensemble.Ensemble, ctx context.Context) error { return e.Restore(ctx, nil) } //nolint:revive // as the methods

func nothing(*ensemble.Ensemble, context.Context) error { return nil } //nolint:revive // as the methods

// Real servers that were emptied, or restored from an older backup, disconnect clients that saw more. The clients reconnect
// by themselves, with new sessions.
func TestClientsComeBackToServersThatHaveForgotten(t *testing.T) {
	t.Parallel()
	for name, c := range losses {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			servers := ensemble.New(t, ensemble.Config{Nodes: c.nodes, Private: true})
			log := new(testkit.Log)
			dial := func() *recipes.Client {
				return testclient.Dial(t, servers.Servers(), recipes.WithSessionTimeout(6*time.Second), recipes.WithLogger(log.Logger(slog.LevelWarn)))
			}
			clients := []*recipes.Client{dial(), dial()}
			holder, waiter := newMutex(t, clients[0], "/lock"), newMutex(t, clients[1], "/lock")
			require.NoError(t, acquire(t, holder).Release())
			require.NoError(t, c.prepare(servers, ctx))
			election, err := latch.New(clients[1], "/latch")
			require.NoError(t, err)
			require.NoError(t, election.Start())
			defer election.Close()
			term, err := election.Await(ctx)
			require.NoError(t, err)
			for range 200 { // so that the servers are far behind
				require.NoError(t, acquire(t, holder).Release())
			}
			lease := acquire(t, holder)
			waiting := acquiring(ctx, waiter)
			known := []int64{clients[0].Conn().SessionID(), clients[1].Conn().SessionID()}
			require.NoError(t, c.lose(servers, ctx))
			start := time.Now()

			require.ErrorIs(t, ended(t, lease), recipes.ErrSessionLost)
			require.ErrorIs(t, ended(t, term), recipes.ErrSessionLost)
			require.NoError(t, servers.WaitServing(ctx))
			got := <-waiting
			require.NoError(t, got.err)
			t.Logf("served again %v after the loss", time.Since(start).Round(time.Second/10))
			require.Less(t, got.lease.FencingToken(), lease.FencingToken(), "tokens begin again")
			require.NoError(t, got.lease.Release())
			require.NoError(t, acquire(t, holder).Release())
			next, err := election.Await(ctx)
			require.NoError(t, err)
			require.NotEqual(t, term.Path(), next.Path())
			for i, client := range clients {
				require.NotContains(t, known, client.Conn().SessionID(), "client %d", i)
			}
			given := 0
			for _, line := range log.Take() {
				if strings.Contains(line, "session abandoned") {
					given++
				}
			}
			require.Equal(t, len(clients), given)
			require.NoError(t, election.Close())
			for _, client := range clients {
				require.NoError(t, client.Close())
			}
		})
	}
}
