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

// outerLock is a lock that a zkr holds which has started this one. Paths are unique on an ensemble only, so the
// token tells whether it is the znode that is meant.
type outerLock struct {
	Znode string `json:"znode"` // on the server
	Token int64  `json:"token"`
}

// outerLocks returns the locks of the environment, none if it has none.
func outerLocks() (locks []outerLock) {
	_ = json.Unmarshal([]byte(os.Getenv(outerVariable)), &locks) // what somebody else has set is disregarded
	return locks
}

func encodeOuter(locks []outerLock) string {
	text, _ := json.Marshal(locks) // strings and numbers can be encoded
	return string(text)
}

// refuseOwnPath refuses a path whose lock is held by a zkr that has started this one, which would wait for itself. permits is the limit of
// a semaphore, which is refused if such zkrs hold all of its permits, and 0 for any other lock.
func (j *job) refuseOwnPath(ctx context.Context, client *recipes.Client, permits int) error {
	dir := max(j.prefix()+strings.TrimSuffix(j.path, "/"), "/")
	if permits > 0 {
		dir = zkutil.Join(dir, "leases")
	}
	held := 0
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
		}
	}
	if held >= max(permits, 1) {
		return exit.Errorf(exit.Usage, "%s is held by the zkr that has started this one, which would wait for itself", j.path)
	}
	return nil
}
