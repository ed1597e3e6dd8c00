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

// seenTerm is one term as its leader has seen it.
type seenTerm struct {
	lease  *recipes.Lease
	by     *contender
	began  time.Time
	rivals []sighting // who else said then that they lead
	first  receipt    // of the write when it began

	// Set when the work returns; guarded by the journal.
	ended    time.Time // the lease's context
	cause    error
	last     receipt // of the write after that
	returned time.Time
}

const instant = "15:04:05.000" // a layout

// over is when the next term may begin: a leader that takes part in the end is waited for.
func (r *seenTerm) over() time.Time {
	if errors.Is(r.cause, recipes.ErrReleased) || errors.Is(r.cause, recipes.ErrClosed) {
		return r.returned
	}
	return r.ended
}

// sighting is somebody who said at some time that they lead. On a busy machine a question may take milliseconds.
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
	terms   []*seenTerm          // guarded by mu
	excused map[string]time.Time // guarded by mu; see excuse
	harmed  map[string]time.Time // guarded by mu; when that began
	expired []expiry             // guarded by mu
	changed chan struct{}        // guarded by mu; closed and replaced when terms change
}

// expiry is the end of a session by somebody else.
type expiry struct {
	of       *group
	from, to time.Time // while it was under way
}

func newJournal() *journal {
	return &journal{excused: map[string]time.Time{}, harmed: map[string]time.Time{}, changed: make(chan struct{})}
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

// excuse notes that somebody else deletes a znode, with or without its session, so that a term on it may overlap with the
// next. The result notes that it is gone.
func (j *journal) excuse(path string) (gone func()) {
	note := func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.excused[path] = time.Now()
		if j.harmed[path].IsZero() {
			j.harmed[path] = j.excused[path]
		}
	}
	note()
	return note
}

// expire notes that somebody else ends the session of a group. All znodes of the session go, not only that of the term that is to
// end: by the time the server acts, another contender of the group may lead. The result notes that the session is gone.
func (j *journal) expire(g *group) (gone func()) {
	from := time.Now()
	return func() {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.expired = append(j.expired, expiry{g, from, time.Now()})
	}
}

// harm returns when somebody else has begun to delete the znode of a term, and when it was gone.
func (j *journal) harm(r *seenTerm) (from, gone time.Time, isHarmed bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if gone, isHarmed = j.excused[r.lease.Path()]; isHarmed {
		return j.harmed[r.lease.Path()], gone, true
	}
	for _, e := range j.expired {
		if e.of == r.by.group && r.began.Before(e.to) && r.ended.After(e.from) {
			return e.from, e.to, true
		}
	}
	return time.Time{}, time.Time{}, false
}

// leader waits for a term that stands, and returns the one with the highest token. It need not be recorded last: one that ended at
// once may follow its successor.
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

// store is what leaders write to. It takes a write in memory by the highest token it has seen, and one into ZooKeeper in a
// transaction with the lease's check.
type store struct {
	conn *zk.Conn
	path string

	mu      sync.Mutex
	memory  judge.Store // guarded by mu
	written []inZxid    // guarded by mu
}

// inZxid is a write that ZooKeeper has taken.
type inZxid struct{ zxid, token int64 }

// receipt says what became of a write.
type receipt struct {
	claimed bool  // the store in memory has taken it
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
