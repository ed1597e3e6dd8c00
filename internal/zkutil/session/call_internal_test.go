package session

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// A received answer counts each time, even if the caller's context ended.
func TestAnswerThatHasComeCounts(t *testing.T) {
	s := &Session{}
	s.life.open = t.Context()
	c := &call{flight: flight{s: s, done: make(chan struct{}), answer: wire.Answer{Path: "/a"}}}
	close(c.flight.done)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		a, err := c.wait(ctx)
		require.NoError(t, err)
		require.Equal(t, "/a", a.Path)
	}
}
