package chaos

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
)

// Znodes that are gone by the logs, or were never there, do not count as left, though a server shows them, nor do watches on them.
func TestGhostsAreNotLeft(t *testing.T) {
	h := told(10)
	gone, there, never := h.Lives[3].Path, h.Lives[8].Path, fencedPath+"/znode-099"
	at := h.monotonic(h.Lives[5].Gone)
	left := []Remnant{{there, "znode"}, {there, "watch"}, {What: "no answer"}}
	shown := append([]Remnant{{gone, "znode"}, {gone, "watch"}, {never, "znode"}, {never, "watch"}}, left...)
	require.Equal(t, left, h.withoutGhosts(shown, at))
}

// A watch on a contender's znode counts as left, one on the directory of a lock does not.
func TestWatchesLeft(t *testing.T) {
	znode := zkadmin.Watch{Path: mixedPath + "/znode-1", Session: "0x1"}
	shown := []zkadmin.Watch{{Path: mixedPath, Session: "0x1"}, znode, {Path: permitsPath + takenDir, Session: "0x2"}}
	require.Equal(t, []Remnant{{znode.Path, "watch of session 0x1 at server"}}, watchesLeft("server", shown))
}
