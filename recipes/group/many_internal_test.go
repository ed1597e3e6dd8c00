package group

import (
	"math"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// A watch takes any number of members. One reflect.Select takes 65,536 cases.
func TestAnyOfManyChannels(t *testing.T) {
	const many = 70_000
	for _, which := range []int{0, many - 1} {
		channels := make([]<-chan struct{}, many)
		var last chan struct{}
		for i := range channels {
			c := make(chan struct{})
			if channels[i] = c; i == which {
				last = c
			}
		}
		first, stop := anyOf(channels)
		select {
		case <-first:
			t.Fatal("none was closed")
		default:
		}
		close(last)
		<-first
		stop()
	}
	none, stop := anyOf(nil)
	stop()
	select {
	case <-none:
		t.Fatal("there is none")
	default:
	}
}

// The marks of containers and of znodes with a TTL are no sessions.
func TestZnodesOfNoSession(t *testing.T) {
	for owner, want := range map[int64]bool{
		0: true, math.MinInt64: true, -1 << 56: true, -1<<56 | 60_000: true, 1: false, 0x1000_0000_0000_0001: false, math.MinInt64 | 1: false,
	} {
		require.Equal(t, want, isLasting(session.Node{Stat: zk.Stat{EphemeralOwner: owner, Czxid: 1}}), "%#x", owner)
	}
}
