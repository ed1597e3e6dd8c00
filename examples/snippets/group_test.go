package snippets

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/group"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

func TestFollowMembers(t *testing.T) {
	server := zktest.NewServer(t)
	// The directory must exist. If it were created while Watch looks for it, a watch could stay until it fires.
	server.Seed(zktest.Znode{Path: "/services/web"})
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, followMembers(ctx, zkclient.Connect(t, server), func(members []group.Member) {
		if len(members) == 1 {
			require.Equal(t, group.Member{ID: "web-1", Data: []byte("10.0.0.7:8080")}, members[0])
			cancel()
		}
	}))
	server.RequireIdle(t)
}
