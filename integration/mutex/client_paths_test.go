package mutex_test

import (
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// New and the server accept the same paths, at the edges of what either refuses.
func TestPathsAsTheServerHasThem(t *testing.T) {
	client, conn := direct(t), observer(t)
	for _, char := range []rune{' ', '\u001f', '~', '\u007f', '\u009f', '\u00a0', '\ud7ff', '\ue000', '\uefff', '\uf000', '\uf8ff', '\uf900', '\uffef', '\ufff0', '\uffff', '\U00010000', '\U0001f512'} {
		path := testkit.Path(t) + string(char)
		_, refused := conn.Create(path, nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
		_, err := mutex.New(client, path)
		if refused != nil {
			require.ErrorIs(t, err, recipes.ErrInvalidPath, "%U: %v", char, refused)
		} else {
			require.NoError(t, err, "%U", char)
		}
	}
}
