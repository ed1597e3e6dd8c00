package inspect_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// Directories and contenders are read in small batches. Sizes just above one and two batches are complete.
func TestMoreThanAreReadAtATime(t *testing.T) {
	for _, n := range []int{15, 16, 17, 33} {
		inBubble(t, func(f *fixture) {
			var directories, contenders []string
			for i := range n {
				directories = append(directories, fmt.Sprintf("/q/%02d/deep/a-lock-0000000001", i))
				contenders = append(contenders, fmt.Sprintf("/one/a-lock-%010d", i))
			}
			seed(f.server, directories...)
			seed(f.server, contenders...)
			require.Len(f, walk(f, f.observer, "/q"), n, "two levels below")
			queue := read(f, f.observer, "/one")
			require.Len(f, queue.Contenders, n)
			for i, c := range queue.Contenders {
				require.Equal(f, contenders[i], c.Path)
				require.Equal(f, i+1, c.Position)
			}
		})
	}
}

// Only the server's own directory is left out, and no other of that or a similar name.
func TestDirectoriesNamedLikeTheServers(t *testing.T) {
	inBubble(t, func(f *fixture) {
		seed(f.server, "/zookeeper-locks/a-lock-0000000001", "/team/zookeeper/a-lock-0000000002", "/zoo/a-lock-0000000003")
		require.Equal(f, []string{"/zoo mutex 1:003*", "/zookeeper-locks mutex 1:001*", "/team/zookeeper mutex 1:002*"}, walk(f, f.observer, "/"))
	})
}
