package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The answer to the first transaction is a success without a czxid, whether or not a quorum committed the transaction. In either case the
// exchange goes through once, and the znode that was given is deleted by it.
func TestUncommittedAnswerToAnExchange(t *testing.T) {
	for _, isCommitted := range []bool{true, false} {
		testkit.Bubble(t, func(t *testing.T) {
			answers := 0
			srv, s := togetherOn(t, func(body []byte) []byte {
				if answers++; answers > 1 {
					return body
				}
				return proto.NewEncoder().Raw(body[:zxidAt]).Int64(0).Int32(0).
					Int32(proto.OpCreate).Bool(false).Int32(0).String("/b/_c_x-lock-0000000000").
					Int32(proto.OpDelete).Bool(false).Int32(0).
					Int32(proto.OpError).Bool(true).Int32(-1).Frame()[4:]
			})
			if !isCommitted {
				srv.Once(zktest.OpMulti, zktest.Fault{Refusal: zktest.RefuseNoAuth})
			}
			held := bubble.Acquire(t, fixture.MutexOn(s, "/a").Acquire)
			reservation, err := s.Budget().Request("/b", session.BytesOf("/b", "lock-"))
			require.NoError(t, err)
			created, err := session.Exchange(t.Context(), s, held, []session.Planned[[]string]{{
				Dir: "/b", Prefix: "lock-", Reservation: reservation, Parse: func(children []string) []string { return children },
			}})
			reservation.End()
			require.NoError(t, err)
			bubble.Pass(time.Second)
			require.ErrorIs(t, context.Cause(held.Context()), zkutil.ErrReleased)
			require.Empty(t, srv.Children("/a"))
			require.Len(t, srv.Children("/b"), 1)
			require.Equal(t, len(created[0].Path)+4, s.Budget().Usage().Used)
			require.Zero(t, srv.Log.Count(zktest.OpDelete))
		})
	}
}
