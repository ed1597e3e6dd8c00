package session_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Two lost answers in a row end it, even if between them a request could not be sent. An answer between them does not.
func TestLostAnswersInARow(t *testing.T) {
	for between, mayAsk := range map[string]bool{"not sent": false, "answered": true} {
		synctest.Test(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			cfg := srv.Config(time.Minute, srv.A)
			cfg.OperationTimeout = time.Second
			s := fixture.Connect(t, cfg)
			lose := func() {
				srv.Once(zktest.OpMultiRead, zktest.Fault{Lost: zktest.ReplyLost})
				_, err := s.FindEach(t.Context(), []string{"/a"})
				require.True(t, zkutil.IsUnanswered(err), "%v", err)
				fixture.Pass(10 * time.Second)
			}
			lose()
			require.True(t, s.CanFindEach())
			if between == "not sent" {
				srv.Stop(srv.A)
			}
			_, err := s.FindEach(t.Context(), []string{"/a"})
			require.Equal(t, between == "not sent", err != nil, "%v", err)
			srv.Restart(srv.A)
			fixture.Pass(10 * time.Second)
			lose()
			require.Equal(t, mayAsk, s.CanFindEach(), between)
		})
	}
}
