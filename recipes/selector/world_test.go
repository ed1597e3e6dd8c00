package selector_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

const (
	election         = "/services/billing" // the path that the tests contend for
	timeout          = 6 * time.Second     // of the sessions
	operationTimeout = 10 * time.Second    // of the clients, by default
	grace            = 5 * time.Second     // where a test asks for one
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

func create(t *testing.T, client *recipes.Client, take selector.TakeLeadership, opts ...selector.Option) *selector.LeaderSelector {
	t.Helper()
	s, err := selector.New(client, election, take, opts...)
	require.NoError(t, err)
	return s
}

// enter returns a selector that takes part, and has done so for a moment.
func enter(t *testing.T, client *recipes.Client, take selector.TakeLeadership, opts ...selector.Option) *selector.LeaderSelector {
	t.Helper()
	s := create(t, client, take, opts...)
	require.NoError(t, s.Start())
	pass(10 * time.Millisecond)
	return s
}

// leader notes its terms, each of which lasts until it has to end.
func (j *journal) leader(name string) selector.TakeLeadership {
	return func(ctx context.Context, _ *recipes.Lease) error {
		j.add("%s leads", name)
		<-ctx.Done()
		j.add("%s ends: %v", name, context.Cause(ctx))
		return ctx.Err()
	}
}

// idle leads until its term ends.
func idle(ctx context.Context, _ *recipes.Lease) error {
	<-ctx.Done()
	return ctx.Err()
}

func sessionOf(client *recipes.Client) int64 { return client.Conn().SessionID() }

func paths(srv *zktest.Server) []string {
	names := srv.Children(election)
	for i, name := range names {
		names[i] = election + "/" + name
	}
	return names
}

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

// read returns what was not read yet, after everything that is due has happened.
func (j *journal) read() []string {
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}
