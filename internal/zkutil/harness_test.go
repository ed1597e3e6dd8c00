package zkutil

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// Two servers of one ensemble.
const (
	serverA = "10.0.0.1:2181"
	serverB = "10.0.0.2:2181"
)

func (f *fake) config(timeout time.Duration) Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	cfg := Config{
		SessionTimeout:   timeout,
		OperationTimeout: 10 * time.Second,
		Dialer:           f.dial,
		ACL:              zk.WorldACL(zk.PermAll),
		Retry:            Retry{}.WithDefaults(),
		Logger:           slog.New(slog.DiscardHandler),
	}
	for server := range f.servers {
		cfg.Servers = append(cfg.Servers, server)
	}
	slices.Sort(cfg.Servers)
	return cfg
}

// connect opens a session and closes it at the end of the bubble.
func connect(t *testing.T, cfg Config) *Session {
	t.Helper()
	s, err := Connect(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	pass(10 * time.Millisecond) // whatever belongs to the connection is done
	return s
}

// mutexOn is the queue of an InterProcessMutex.
func mutexOn(s *Session, dir string) *Queue {
	return &Queue{Session: s, Recipe: "mutex", Dir: dir, Prefix: "lock-", Markers: Markers, Data: []byte("me"), Rule: Exclusive}
}

func acquire(t *testing.T, q *Queue) *Entry {
	t.Helper()
	e, err := q.Acquire(t.Context())
	require.NoError(t, err)
	return e
}

// ended is when and why an entry's context ended; it waits for that.
func ended(t *testing.T, e *Entry) (time.Time, error) {
	t.Helper()
	select {
	case <-e.Context().Done():
		return time.Now(), context.Cause(e.Context())
	case <-time.After(time.Hour):
		require.FailNow(t, "the hold stands after an hour")
		return time.Time{}, nil
	}
}

// requests returns the requests that reached a server, those with one of ops if any
// is given.
func (f *fake) requests(ops ...int32) []seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.log), func(r seen) bool {
		return len(ops) > 0 && !slices.Contains(ops, r.op)
	})
}

// times are the moments of requests, counted from a start.
func times(requests []seen, start time.Time) []time.Duration {
	var at []time.Duration
	for _, r := range requests {
		if !r.at.Before(start) {
			at = append(at, r.at.Sub(start))
		}
	}
	return at
}

// lastWrite is when the latest committed write reached the quorum: on a line of the
// bubble that is when it was sent.
func (f *fake) lastWrite() (last time.Time) {
	for _, r := range f.requests(opCreate, opCreateContainer, opDelete, opSetData, opMulti) {
		last = latest(last, r.at)
	}
	return last
}

// onRequest sets what goes wrong with the requests to come.
func (f *fake) onRequest(trouble func(r seen) fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = trouble
}

// once makes trouble for the next request of an operation.
func (f *fake) once(op int32, trouble fault) {
	done := false
	f.onRequest(func(r seen) fault {
		if r.op != op || done {
			return fault{}
		}
		done = true
		return trouble
	})
}

// expiryOf is when a session will end unless it is heard of.
func (f *fake) expiryOf(id int64) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s, ok := f.sessions[id]; ok {
		return s.expiry
	}
	return time.Time{}
}

func (f *fake) alive(id int64) bool { return !f.expiryOf(id).IsZero() }

// sessionID is the id of the present session.
func sessionID(s *Session) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// eventually waits in virtual time until condition holds.
func eventually(t *testing.T, limit time.Duration, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); ; {
		synctest.Wait()
		if condition() {
			return
		}
		require.True(t, time.Now().Before(end), "not within %v", limit)
		pass(10 * time.Millisecond)
	}
}

// pass lets virtual time go by.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // virtual time

var errBroken = errors.New("broken pipe")
