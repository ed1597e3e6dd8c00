package mutex

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Cohort bounds for how long the mutexes of a cohort keep the lock: see [WithCohort]. A field of zero
// means its default.
type Cohort struct {
	// MaxPasses is how often at most the lock is passed on inside while a contender from elsewhere waits.
	// The default is 100.
	MaxPasses int
	// MaxTenure is for how long the lock is passed on inside after the arrival of a contender from
	// elsewhere. A lease that stands then is not cut short. The default is 100 ms.
	MaxTenure time.Duration
	// Linger is for how long the znode stays after a Release when nobody waits, so that the next Acquire of
	// this client sends no request. Meanwhile the client counts as the holder. When a contender from
	// elsewhere arrives, the znode is deleted at once. The default is 0: the znode goes with the Release.
	Linger time.Duration
}

const (
	defaultMaxPasses = 100
	defaultMaxTenure = 100 * time.Millisecond
)

// WithCohort has all mutexes of one client on one path that ask for it share one znode, and pass the lock
// on among themselves. Inside, callers get the lock in the order of their arrival, and a pass sends no
// request. Other contenders see one ordinary contender, and need to know nothing of it. A mutex of the same
// client without the option is one of them.
//
// A pass is a grant inside after the first one on a znode. While a contender from elsewhere waits, the znode
// goes after MaxPasses passes, or at the first Release after MaxTenure, and the cohort queues again at the
// tail. The client learns of a contender by an event from its server. If it may have missed one, because its
// connection is down, the bounds count from then on. A revocation of the znode ends the passes after the
// present lease, whose Revoked is closed.
//
// Leases on one znode have the same fencing token. Each follows the one before by its Release. So release a
// lease only after all that it protects has ended: a write that is still under way, such as one that was
// abandoned when its context ended, is not refused by its token while the next lease of the same client
// works. A lease that is lost ends with all others of the znode, and the next one has a larger token. Lease.Check
// fails when the znode is gone, not when the lease was passed on.
//
// The bounds of a cohort are those of its first mutex: New fails if they differ. The znode has the id of the mutex
// for which it was created.
func WithCohort(cohort Cohort) Option {
	return func(cfg *config) error {
		if min(cohort.MaxTenure, cohort.Linger) < 0 || cohort.MaxPasses < 0 {
			return errors.New("cohort: negative field")
		}
		cfg.cohort = &queue.Bounds{MaxPasses: cohort.MaxPasses, MaxTenure: cohort.MaxTenure, Linger: cohort.Linger}
		if cohort.MaxPasses == 0 {
			cfg.cohort.MaxPasses = defaultMaxPasses
		}
		if cohort.MaxTenure == 0 {
			cfg.cohort.MaxTenure = defaultMaxTenure
		}
		return nil
	}
}

// contender is how a mutex gets a hold: with a znode of its own, or with that of its cohort.
type contender interface {
	AcquireTraced(ctx context.Context, mayWait bool, a *session.Acquisition) (*session.Entry, error)
}

var (
	_ contender = (*queue.Queue)(nil)
	_ contender = (*queue.Cohort)(nil)
)

// addWaitingInside adds to the id of the mutex's own cohort how many callers wait inside.
func (m *InterProcessMutex) addWaitingInside(participants []recipes.Participant) {
	cohort, isCohort := m.contender.(*queue.Cohort)
	if !isCohort {
		return
	}
	path, waiting := cohort.Inside()
	for i := range participants {
		if p := &participants[i]; p.Path == path && waiting > 0 && !p.Revoked {
			p.ID += fmt.Sprintf(" (+%d inside)", waiting)
		}
	}
}
