package election_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// seenTerm is one term as seen by its leader.
type seenTerm struct {
	lease  *recipes.Lease
	by     *contender
	began  time.Time
	rivals []sighting // other claims to lead at that time
	first  receipt    // of the write when it began

	// Set when the work returns; guarded by the journal.
	ended    time.Time // the lease's context
	cause    error
	last     receipt // of the write after that
	returned time.Time
}

const instant = "15:04:05.000" // a layout

// over is when the next term may begin. A leader that takes part in the end is waited for.
func (r *seenTerm) over() time.Time {
	if errors.Is(r.cause, recipes.ErrReleased) || errors.Is(r.cause, recipes.ErrClosed) {
		return r.returned
	}
	return r.ended
}

// sighting is a claim to lead at some time. On a busy machine, a question may take milliseconds.
type sighting struct {
	who             *contender
	asked, answered time.Time
}

func (r *seenTerm) String() string {
	return fmt.Sprintf("%s (token %#x, from %s)", r.by.id, r.lease.FencingToken(), r.began.Format(instant))
}

// journal records the terms in the order in which they began.
type journal struct {
	mu      sync.Mutex
	terms   []*seenTerm     // guarded by mu
	harmed  map[string]span // guarded by mu; the deletions of znodes by third parties
	expired []expiry        // guarded by mu
	changed chan struct{}   // guarded by mu; closed and replaced when terms change
}

// span is the time of an action of a third party: from before the request until after its answer.
type span struct{ from, to time.Time }

// expiry is the end of a session by a third party.
type expiry struct {
	of *group
	span
}

func newJournal() *journal {
	return &journal{harmed: map[string]span{}, changed: make(chan struct{})}
}

func (j *journal) begin(r *seenTerm) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.terms = append(j.terms, r)
	j.announce()
}

func (j *journal) end(r *seenTerm, at time.Time, cause error, last receipt) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r.ended, r.cause, r.last, r.returned = at, cause, last, time.Now()
	j.announce()
}

// announce is called under the lock.
func (j *journal) announce() {
	close(j.changed)
	j.changed = make(chan struct{})
}

// harmZnode records that a third party deletes a znode, so that a term on it may overlap with the next. The result records the
// deletion.
func (j *journal) harmZnode(path string) (gone func()) {
	note := func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		now := time.Now()
		harm, isKnown := j.harmed[path]
		if !isKnown {
			harm.from = now
		}
		harm.to = now
		j.harmed[path] = harm
	}
	note()
	return note
}

// harmSession records that a third party ends the session of a group. All znodes of the session are deleted, not only that of the
// term: by the time the server acts, another contender of the group may lead. The result records the end of the session.
func (j *journal) harmSession(g *group) (gone func()) {
	from := time.Now()
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.expired = append(j.expired, expiry{g, span{from, time.Now()}})
	}
}

// harmTo returns the excuse of a term, when the third party began to delete its znode, and when the znode was deleted.
func (j *journal) harmTo(r *seenTerm) (excuse judge.Excuse, from, gone time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if harm, isHarmed := j.harmed[r.lease.Path()]; isHarmed {
		return judge.ZnodeDeleted, harm.from, harm.to
	}
	for _, e := range j.expired {
		if e.of == r.by.group && r.began.Before(e.to) && r.ended.After(e.from) {
			return judge.SessionExpired, e.from, e.to
		}
	}
	return judge.None, time.Time{}, time.Time{}
}

// leader waits for a valid term, and returns the one with the highest token. Its record need not be the last, because a term
// that ended at once may be recorded after its successor.
func (j *journal) leader(ctx context.Context) (*seenTerm, error) {
	return j.find(ctx, func(terms []*seenTerm) (latest *seenTerm) {
		for _, r := range terms {
			if r.lease.Context().Err() == nil && (latest == nil || r.lease.FencingToken() > latest.lease.FencingToken()) {
				latest = r
			}
		}
		return latest
	})
}

// after waits for the first term with a higher token.
func (j *journal) after(ctx context.Context, old *seenTerm) (*seenTerm, error) {
	return j.find(ctx, func(terms []*seenTerm) *seenTerm {
		for _, r := range terms {
			if r.lease.FencingToken() > old.lease.FencingToken() {
				return r
			}
		}
		return nil
	})
}

func (j *journal) find(ctx context.Context, search func([]*seenTerm) *seenTerm) (*seenTerm, error) {
	for {
		j.mu.Lock()
		found, changed := search(j.terms), j.changed
		j.mu.Unlock()
		if found != nil {
			return found, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// store accepts the leaders' writes. It accepts a write in memory by the highest token so far, and one into ZooKeeper in a
// transaction with the lease's check.
type store struct {
	conn *zk.Conn
	path string

	mu      sync.Mutex
	memory  judge.Store // guarded by mu
	written []inZxid    // guarded by mu
}

// inZxid is the transaction of a write in ZooKeeper.
type inZxid struct{ zxid, token int64 }

// receipt says what became of a write.
type receipt struct {
	claimed bool  // the store in memory accepted the claim
	err     error // of the transaction
}

func newStore(t *testing.T, conn *zk.Conn, path string) *store {
	t.Helper()
	_, err := conn.Create(path, []byte{}, 0, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	return &store{conn: conn, path: path}
}

func (s *store) write(lease *recipes.Lease) receipt {
	token := lease.FencingToken()
	s.mu.Lock()
	taken := receipt{claimed: s.memory.Write(token)}
	s.mu.Unlock()
	results, err := s.conn.Multi(lease.Check(), &zk.SetDataRequest{Path: s.path, Data: strconv.AppendInt(nil, token, 10), Version: -1})
	taken.err = err
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.written = append(s.written, inZxid{results[1].Stat.Mzxid, token})
	}
	return taken
}
