package chaos

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Znodes that are deleted by the logs, or were never created, do not count as leftovers, even if a server shows them, nor do
// watches on them. A watch on a znode that no server shows does.
func TestGhostsAreNotLeft(t *testing.T) {
	h := told(10)
	gone, there, never := h.Lives[3], h.Lives[8].Path, fencedPath+"/znode-099"
	h.Views = []View{{At: h.monotonic(gone.Gone) + toldLate + second, Queues: map[string][]string{fencedPath: {"znode-103", "znode-099"}}}}
	require.Equal(t, fencedPath+"/znode-103", gone.Path)
	left := []Remnant{
		{Znode: there},
		{Znode: there, Watcher: "0x1"},
		{Znode: h.Lives[4].Path, Watcher: "0x1"},
		{Znode: "/elsewhere", Watcher: "0x1"},
		{Trouble: "no answer"},
	}
	ghosts := []Remnant{{Znode: gone.Path}, {Znode: gone.Path, Watcher: "0x1"}, {Znode: never}, {Znode: never, Watcher: "0x1"}}
	require.Equal(t, left, h.withoutGhosts(append(ghosts, left...), h.monotonic(h.Lives[5].Gone)))
}
