package snippets

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// startOnce fails the second Start, as a manager of controller-runtime does.
type startOnce struct {
	started bool
	run     func(ctx context.Context) error
}

func (m *startOnce) Start(ctx context.Context) error {
	if m.started {
		return errors.New("manager already started")
	}
	m.started = true
	return m.run(ctx)
}

func TestRunManager(t *testing.T) {
	server := zktest.NewServer(t)
	client := zkclient.Connect(t, server)
	ctx, cancel := context.WithCancel(t.Context())
	terms := 0
	err := runManager(ctx, client, func() (starter, error) {
		terms++
		return &startOnce{run: func(ctx context.Context) error {
			if terms == 1 {
				server.Expire(client.Conn().SessionID()) // the first term is lost
			} else {
				cancel()
			}
			<-ctx.Done()
			return nil
		}}, nil
	})
	require.NoError(t, err)
	require.Equal(t, 2, terms)
	server.RequireIdle(t)
}
