package cli

import (
	"context"
	"encoding/json"
	"os"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/await"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// outerVariable has the locks under which a command runs, as JSON, the outermost first.
const outerVariable = "ZKR_OUTER_LOCKS"

// outerLock is a lock held by an outer zkr, an ancestor of this process. The token identifies the znode, because
// paths are unique only within an ensemble.
type outerLock struct {
	Znode string `json:"znode"` // on the server
	Token int64  `json:"token"`
}

// outerLocks returns the locks of the environment, none if it has none.
func outerLocks() (locks []outerLock) {
	_ = json.Unmarshal([]byte(os.Getenv(outerVariable)), &locks) // a value that zkr did not write is disregarded
	return locks
}

func encodeOuter(locks []outerLock) string {
	text, _ := json.Marshal(locks) // strings and numbers can be encoded
	return string(text)
}

// refuseOwnPath refuses a path whose lock is held by an outer zkr, because the two would deadlock. permits is the limit of a
// semaphore, and 0 for any other lock; a semaphore is refused if outer zkrs hold all of its permits. Two readers exclude each
// other as well, once a writer waits between them.
func (j *job) refuseOwnPath(ctx context.Context, client *recipes.Client, permits int, wantsShared bool) error {
	dir := max(j.prefix()+strings.TrimSuffix(j.path, "/"), "/")
	if permits > 0 {
		dir = zkutil.Join(dir, "leases")
	}
	held, isShared := 0, true
	for _, outer := range outerLocks() {
		if at := strings.LastIndexByte(outer.Znode, '/'); at < 0 || max(outer.Znode[:at], "/") != dir {
			continue
		}
		stat, err := await.Call(ctx, func() (*zk.Stat, error) {
			_, stat, err := client.Conn().Exists(outer.Znode)
			return stat, err
		})
		if err != nil {
			return err
		}
		if stat.Czxid == outer.Token {
			held++
			isShared = isShared && strings.Contains(outer.Znode[strings.LastIndexByte(outer.Znode, '/'):], "__READ__")
		}
	}
	switch {
	case held < max(permits, 1):
		return nil
	case isShared && wantsShared:
		return exit.Errorf(exit.Usage, "%s is held with --shared by the zkr that started this one; with a writer queued in between, each would wait for the other", j.path)
	default:
		return exit.Errorf(exit.Usage, "%s is held by the zkr that started this one; waiting for it would deadlock", j.path)
	}
}
