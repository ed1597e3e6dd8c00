package track_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/dial"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/track"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A session that is connected to a former member reconnects to a member, and keeps its holds.
func TestSessionLeavesAFormerMember(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t, zktest.WithServers(2))
		first, second := srv.Addrs()[0], srv.Addrs()[1]
		s := fixture.Connect(t, srv.Config(6*time.Second, first))
		<-track.Start(s)
		held := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		other := fmt.Sprintf("server.2=zk2:2888:3888:participant;%s\n", second)
		srv.Put(dial.ConfigPath, fmt.Appendf(nil, "server.1=zk1:2888:3888:participant;%s\n%sversion=1", first, other))
		bubble.Pass(time.Second)
		require.Equal(t, first, s.Health().Server)
		srv.Put(dial.ConfigPath, []byte(other+"version=2"))
		bubble.Pass(6 * time.Second)
		require.Equal(t, second, s.Health().Server)
		require.True(t, held.Stands())
		require.NoError(t, held.Leave())
	})
}

// A configuration that the session may not read counts as read, and is asked for again on the next connection.
func TestRefusedConfigurationIsReadOnTheNextConnection(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		reads := 0
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Path == dial.ConfigPath {
				reads++
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		s := fixture.Connect(t, srv.Config(6*time.Second))
		<-track.Start(s)
		bubble.Pass(time.Minute)
		require.Equal(t, 1, reads)
		srv.Stop()
		srv.Restart()
		bubble.Pass(10 * time.Second)
		require.Equal(t, 2, reads)
	})
}
