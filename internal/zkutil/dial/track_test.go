package dial

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// A tracker follows a newer configuration, and reports servers and problems only when they change.
func TestTrackerReportsEachChangeOnce(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := New(t.Context(), Config{}, &testOwner{patience: time.Second})
		defer func() { <-d.FinishUserCalls() }()
		tracker := d.Track()
		config := func(version, host string) []byte {
			return []byte("server.1=" + host + ":2888:3888:participant;" + host + ":2181\nversion=" + version)
		}
		_, err := tracker.Apply([]byte("server.1=10.0.0.1:2888:3888:participant\nversion=1"), 7)
		require.ErrorContains(t, err, "0 of 1 servers")
		_, err = tracker.Apply([]byte("server.1=10.0.0.1:2888:3888:participant\nversion=1"), 7)
		require.NoError(t, err, "the same problem")

		for _, step := range []struct {
			version, host string
			sessionID     int64
			isChange      bool
		}{
			{"2", "10.0.0.1", 7, true},
			{"2", "10.0.0.1", 7, false},
			{"3", "10.0.0.1", 7, false},
			{"2", "10.0.0.2", 7, false}, // older than version 3
			{"2", "10.0.0.2", 8, true},  // restored servers
			{"0", "10.0.0.3", 8, false}, // older than version 2
			{"0", "10.0.0.3", 9, true},  // suggested
			{"0", "10.0.0.3", 9, false},
		} {
			changed, err := tracker.Apply(config(step.version, step.host), step.sessionID)
			require.NoError(t, err, step)
			if step.isChange {
				require.Equal(t, []string{step.host + ":2181"}, changed, step)
			} else {
				require.Nil(t, changed, step)
			}
		}

		require.ErrorIs(t, tracker.Refused(zk.ErrNoNode), zk.ErrNoNode)
		require.NoError(t, tracker.Refused(zk.ErrNoNode), "the same problem")
	})
}
