package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// Connect returns within a millisecond of the end of its context, in every phase, which is a dial, a handshake or a
// pause between two rounds of dials.
func TestConnectEndsWithItsContext(t *testing.T) {
	for name, trouble := range map[string]func(srv *fixture.Ensemble){
		"refused":     func(srv *fixture.Ensemble) { srv.Stop(srv.A) },
		"hanging":     func(srv *fixture.Ensemble) { srv.Hang(srv.A) },
		"partitioned": func(srv *fixture.Ensemble) { srv.Partition() },
	} {
		t.Run(name, func(t *testing.T) {
			for limit := 500 * time.Millisecond; limit < 4*time.Second; limit += 130 * time.Millisecond {
				testkit.Bubble(t, func(t *testing.T) {
					srv := fixture.NewEnsemble(t)
					trouble(srv)
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					start := time.Now()
					_, err := session.Connect(ctx, srv.Config(6*time.Second))
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.LessOrEqual(t, time.Since(start), limit+time.Millisecond)
					require.Zero(t, srv.Open())
				})
			}
		})
	}
}
