package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
)

// errLate is returned when some contenders have not had their last lease in time.
var errLate = fmt.Errorf("chaos: somebody did not get the lock once more within %v", 2*healedIn)

// settle asks every contender for one more lease, and returns how long that took.
func (r *run) settle(healed int64) (took time.Duration, err error) {
	for _, c := range r.clients {
		c.finish()
	}
	late := time.After(2 * healedIn) // to tell who is slow from who is stuck
	var last int64
	for _, c := range r.clients {
		for c.idle.Load() == 0 {
			select {
			case <-c.gone:
				if c.idle.Load() == 0 {
					return 0, fmt.Errorf("chaos: client %d has ended before its contenders were done", c.proc)
				}
			case <-late:
				return 0, errLate
			case <-time.After(10 * time.Millisecond):
			}
		}
		last = max(last, c.idle.Load())
	}
	return time.Duration(last - healed), nil
}

// left is what remains at the servers of contenders that are done, in sessions that stand.
// The sessions of killed processes may take their time to expire.
func (r *run) left(ctx context.Context) (all []string) {
	for begun := time.Now(); ; pause(ctx, 100*time.Millisecond) {
		all = r.leftNow(ctx)
		if len(all) == 0 || time.Since(begun) > 2*SessionTimeout || ctx.Err() != nil {
			return all
		}
	}
}

func (r *run) leftNow(ctx context.Context) (all []string) {
	for _, path := range dirs() {
		names, _, err := r.admin.Children(path)
		if err != nil && !errors.Is(err, zk.ErrNoNode) { // the container may have been reaped
			names = []string{err.Error()}
		}
		for _, name := range names {
			all = append(all, path+"/"+name)
		}
	}
	for _, server := range r.servers.Servers() {
		watches, err := zkadmin.FourLetter(ctx, server, "wchs")
		if err != nil || !strings.Contains(watches, "Total watches:0") {
			all = append(all, fmt.Sprintf("watches at a server: %s %v", watches, err))
		}
	}
	return all
}
