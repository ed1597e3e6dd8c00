package mutex

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/cohort"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trace"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Cohort bounds for how long the mutexes of a cohort keep the lock (see [WithCohort]). A zero field means the default.
type Cohort struct {
	// MaxPasses is the maximum number of passes inside the cohort while a contender from elsewhere waits. The
	// default is 100.
	MaxPasses int
	// MaxTenure is the time for which passes continue inside the cohort after the arrival of a contender from
	// elsewhere. A lease that is valid at the end of MaxTenure is not cut short. The default is 100 ms.
	MaxTenure time.Duration
	// Linger is how long the client keeps the znode after a Release with no waiter, so that its next Acquire sends no
	// request. Meanwhile the client counts as the holder. When a contender from elsewhere arrives, the znode is deleted
	// at once. The default is 0, so that Release deletes the znode.
	Linger time.Duration
}

const (
	defaultMaxPasses = 100
	defaultMaxTenure = 100 * time.Millisecond
)

// WithCohort makes a mutex share a znode with all other mutexes of the same client and path that have the
// option, and pass the lock on among themselves. Inside, callers get the lock in the order of their arrival,
// and a pass sends no request. Other contenders see a single ordinary contender, and need to know nothing of
// the cohort. A mutex of the same client without the option is an ordinary contender too.
//
// A pass is a grant inside the cohort after the first grant on a znode. While a contender from elsewhere waits, the
// znode is deleted after MaxPasses passes, or at the first Release after MaxTenure, and the cohort queues again at the
// tail. The client learns of a contender by an event from its server. If the client may miss such an event, because the
// connection is down, the bounds count from then on. A revocation of the znode ends the passes after the present lease,
// whose Revoked is closed.
//
// Leases on one znode have the same fencing token. Each lease follows the Release of the lease before. So release a
// lease only once all work under it is done. A write still in flight, such as a write abandoned at the end of its
// context, is not refused by its token while the next lease of the same client is valid. The loss of a lease ends all
// others of the znode, and the next lease has a larger token. Lease.Check fails when the znode is deleted, not when the
// lease was passed on.
//
// The first mutex of a cohort sets the bounds: New fails for a later mutex with other bounds. The znode has the
// id of the mutex for which the znode was created.
func WithCohort(cohort Cohort) Option {
	return func(cfg *config) error {
		if min(cohort.MaxTenure, cohort.Linger) < 0 || cohort.MaxPasses < 0 {
			return errors.New("cohort: negative field")
		}
		cfg.cohort = cohort.bounds()
		if cohort.MaxPasses == 0 {
			cfg.cohort.MaxPasses = defaultMaxPasses
		}
		if cohort.MaxTenure == 0 {
			cfg.cohort.MaxTenure = defaultMaxTenure
		}
		return nil
	}
}

// bounds returns the fields as the bounds of the engine.
func (c Cohort) bounds() *cohort.Bounds {
	return &cohort.Bounds{MaxPasses: c.MaxPasses, MaxTenure: c.MaxTenure, Linger: c.Linger}
}

// contender acquires holds for a mutex: with a znode of its own, or with the znode of the cohort.
type contender interface {
	Acquire(ctx context.Context, mayWait bool, a *trace.Acquisition) (*session.Entry, error)
}

var (
	_ contender = (*queue.Queue)(nil)
	_ contender = (*cohort.Cohort)(nil)
)

// addWaitingInside appends the number of callers waiting inside to the id of the mutex's own cohort.
func (m *InterProcessMutex) addWaitingInside(participants []recipes.Participant) {
	own, isCohort := m.contender.(*cohort.Cohort)
	if !isCohort {
		return
	}
	path, waiting := own.Inside()
	for i := range participants {
		if p := &participants[i]; p.Path == path && waiting > 0 && !p.Revoked {
			p.ID += fmt.Sprintf(" (+%d inside)", waiting)
		}
	}
}
