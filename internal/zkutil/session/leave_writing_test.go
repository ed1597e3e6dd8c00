package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The caller gives up before the answer to the transaction that writes the end of its work and deletes the znode. The end of the work then
// deletes the znode, also if the transaction is refused, and an answer that arrives afterwards changes nothing.
func TestAnswerBehindTheEndOfTheWork(t *testing.T) {
	for name, fault := range map[string]zktest.Fault{
		"answered later": {Delay: 4 * time.Second},
		"refused later":  {Delay: 4 * time.Second, Refusal: zktest.RefuseNoAuth},
		"answer lost":    {Lost: zktest.ReplyLost},
		"request lost":   {Lost: zktest.RequestLost},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := fixture.NewEnsemble(t)
				srv.Put("/record", nil)
				s := fixture.Connect(t, srv.Config(time.Minute))
				e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
				end, err := e.BeginWork()
				require.NoError(t, err)
				fixture.Settle()
				isMet := false
				srv.OnRequest(func(r zktest.Request) zktest.Fault {
					if isMet || r.Op != zktest.OpMulti {
						return zktest.Fault{}
					}
					isMet = true
					return fault
				})
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				isSent, err := e.LeaveWriting(ctx, "/record", []byte("done"), 0)
				require.True(t, isSent)
				require.Error(t, err)
				end()(nil)
				bubble.Pass(30 * time.Second)
				require.True(t, isMet)
				require.Empty(t, srv.Children("/m"))
				require.False(t, s.IsInUse())
			})
		})
	}
}
