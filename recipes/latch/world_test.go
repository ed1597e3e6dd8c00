package latch_test

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

const (
	election = "/services/billing" // the path that the tests contend for
	timeout  = 6 * time.Second     // of the sessions
	tick     = 50 * time.Millisecond
)

// pass lets virtual time go by, and whatever is due at its end happen.
func pass(d time.Duration) {
	pause(d)
	synctest.Wait()
}

// pause is user code at work.
func pause(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
}

func create(t *testing.T, client *recipes.Client, opts ...latch.Option) *latch.LeaderLatch {
	t.Helper()
	l, err := latch.New(client, election, opts...)
	require.NoError(t, err)
	return l
}

// enter returns a latch that takes part.
func enter(t *testing.T, client *recipes.Client, opts ...latch.Option) *latch.LeaderLatch {
	t.Helper()
	l := create(t, client, opts...)
	require.NoError(t, l.Start())
	return l
}

// lead returns a latch that leads, and its term.
func lead(t *testing.T, client *recipes.Client, opts ...latch.Option) (*latch.LeaderLatch, *recipes.Lease) {
	t.Helper()
	l := enter(t, client, opts...)
	return l, await(t, l)
}

// await waits for a latch to lead.
func await(t *testing.T, l *latch.LeaderLatch) *recipes.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	term, err := l.Await(ctx)
	require.NoError(t, err)
	return term
}

// ended waits for the end of a term, and returns the cause.
func ended(t *testing.T, term *recipes.Lease) error {
	t.Helper()
	select {
	case <-term.Context().Done():
		return context.Cause(term.Context())
	case <-time.After(time.Hour):
		require.FailNow(t, "the term stands after an hour")
		return nil
	}
}

// leaders are the latches that lead.
func leaders(latches ...*latch.LeaderLatch) []*latch.LeaderLatch {
	var leading []*latch.LeaderLatch
	for _, l := range latches {
		if l.HasLeadership() {
			leading = append(leading, l)
		}
	}
	return leading
}

// participant is what others see of a leader.
func participant(srv *zktest.Server, id string, term *recipes.Lease) recipes.Participant {
	_, stat, _ := srv.Get(term.Path())
	return recipes.Participant{
		ID: id, Path: term.Path(), Leader: true, Token: term.FencingToken(), Since: time.UnixMilli(stat.Ctime),
	}
}

func sessionOf(client *recipes.Client) int64 { return client.Conn().SessionID() }

// journal is what has happened, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

// read returns what was not read yet.
func (j *journal) read() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

// listener notes its calls.
func (j *journal) listener(name string) latch.Listener {
	return latch.Listener{
		IsLeader:  func(*recipes.Lease) { j.add("%s leads", name) },
		NotLeader: func() { j.add("%s ends", name) },
	}
}

// collect reads what a channel has now, and whether it is closed.
func collect[T any](c <-chan T) (values []T, closed bool) {
	synctest.Wait()
	for {
		select {
		case v, ok := <-c:
			if !ok {
				return values, true
			}
			values = append(values, v)
			synctest.Wait()
		default:
			return values, false
		}
	}
}

// logBuffer is a log that may be read while the client writes to it.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *logBuffer) Write(line []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(line)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
