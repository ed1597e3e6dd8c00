package zkutil

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Connect returns within a millisecond of the end of its context, whatever it is at: a dial, a
// handshake, a pause between two rounds of dials.
func TestConnectEndsWithItsContext(t *testing.T) {
	for name, trouble := range map[string]func(srv *ensemble){
		"refused":     func(srv *ensemble) { srv.Stop(srv.a) },
		"hanging":     func(srv *ensemble) { srv.hang(srv.a) },
		"partitioned": func(srv *ensemble) { srv.Partition() },
	} {
		t.Run(name, func(t *testing.T) {
			for limit := 500 * time.Millisecond; limit < 4*time.Second; limit += 130 * time.Millisecond {
				synctest.Test(t, func(t *testing.T) {
					srv := newEnsemble(t)
					trouble(srv)
					ctx, cancel := context.WithTimeout(t.Context(), limit)
					defer cancel()
					start := time.Now()
					_, err := Connect(ctx, srv.config(6*time.Second))
					require.ErrorIs(t, err, context.DeadlineExceeded)
					require.LessOrEqual(t, time.Since(start), limit+time.Millisecond)
					require.Zero(t, srv.open())
				})
			}
		})
	}
}
