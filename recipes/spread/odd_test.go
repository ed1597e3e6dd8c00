package spread_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/spread"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// odd is a candidate of another package. Its type is not comparable.
type odd struct {
	id    string
	name  string
	leads func() bool
	list  func() ([]recipes.Participant, error)
	_     []int
}

func (o odd) ID() string          { return o.id }
func (o odd) String() string      { return "odd " + o.name }
func (o odd) HasLeadership() bool { return o.leads() }

func (o odd) Participants(context.Context) ([]recipes.Participant, error) { return o.list() }
func (o odd) TransferTo(context.Context, string) error                    { panic("transfer") }

// A nil candidate, one that can't return its ID, and one that is already added are refused, for any types.
func TestOddCandidates(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		client := testclient.Connect(t, zktest.NewServer(t))
		s, err := spread.New(client, meeting, spread.WithID("a"))
		require.NoError(t, err)
		for _, e := range []spread.Election{(*latch.LeaderLatch)(nil), (*selector.LeaderSelector)(nil), (*odd)(nil)} {
			_, err = s.Add(e)
			require.ErrorIs(t, err, recipes.ErrInvalidArgument)
			require.ErrorContains(t, err, "nil election")
		}
		l, err := latch.New(client, "/shards/1", latch.WithID("a"))
		require.NoError(t, err)
		remove, err := s.Add(l)
		require.NoError(t, err)
		_, err = s.Add(l)
		require.ErrorIs(t, err, recipes.ErrInvalidArgument)
		require.ErrorContains(t, err, "already added")
		remove()
		again, err := s.Add(l)
		require.NoError(t, err)
		remove() // removes nothing any more
		_, err = s.Add(l)
		require.ErrorIs(t, err, recipes.ErrInvalidArgument)
		again()
		_, err = s.Add(odd{id: "a"})
		require.NoError(t, err)
		_, err = s.Add(odd{id: "a"})
		require.ErrorContains(t, err, "odd  is already added", "it can't be compared, but has a name")
		require.NoError(t, s.Close())
	})
}

// own is a candidate that takes part.
func own() ([]recipes.Participant, error) { return []recipes.Participant{{ID: "a"}}, nil }

// A panic in a candidate of another package is logged, and the other elections are taken over.
func TestCandidateThatPanics(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var log testkit.Log
		client := testclient.Connect(t, srv, recipes.WithLogger(log.Logger(slog.LevelWarn)))
		s, err := spread.New(client, meeting, spread.WithID("a"))
		require.NoError(t, err)
		never := func() bool { return false }
		for _, e := range []odd{
			{id: "a", name: "1", leads: func() bool { panic("leads") }},
			{id: "a", name: "2", leads: never, list: func() ([]recipes.Participant, error) { panic("list") }},
			{id: "a", name: "3", leads: never, list: own},
			{id: "a", name: "4", leads: never, list: func() ([]recipes.Participant, error) { return nil, nil }},
		} {
			_, err := s.Add(e)
			require.NoError(t, err)
		}
		require.NoError(t, s.Start())
		pass(10 * time.Minute)
		for _, text := range []string{"panic: leads", "panic: list", "panic: transfer"} {
			require.Equal(t, 1, strings.Count(log.String(), text), log.String())
		}
		require.Equal(t, 3, strings.Count(log.String(), "can't take over leadership; retrying"))
		require.Contains(t, log.String(), `election="odd 3"`)
		require.NoError(t, s.Close())
	})
}

// A candidate of another package may close the Spread or the client, and may end its goroutine. The Spread neither deadlocks
// nor stops silently.
func TestCandidateThatClosesOrEndsItsGoroutine(t *testing.T) {
	for name, test := range map[string]struct {
		leads func(s *spread.Spread, client *recipes.Client) bool
		goes  bool // the Spread continues
	}{
		"closes the Spread": {func(s *spread.Spread, _ *recipes.Client) bool { return s.Close() == nil }, false},
		"closes the client": {func(_ *spread.Spread, client *recipes.Client) bool { return client.Close() == nil }, false},
		"goexit":            {func(*spread.Spread, *recipes.Client) bool { runtime.Goexit(); return true }, true},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				client := testclient.Connect(t, srv)
				s, err := spread.New(client, meeting, spread.WithID("a"))
				require.NoError(t, err)
				var calls, returned atomic.Int32
				_, err = s.Add(odd{id: "a", leads: func() bool {
					calls.Add(1)
					defer returned.Add(1)
					return test.leads(s, client)
				}})
				require.NoError(t, err)
				require.NoError(t, s.Start())
				pass(time.Minute)
				require.Equal(t, calls.Load(), returned.Load(), "it waits for itself")
				require.Equal(t, test.goes, calls.Load() > 1)
				if test.goes {
					require.NoError(t, s.Close())
				}
				require.Empty(t, srv.Children(meeting))
			})
		})
	}
}

// A candidate of another package whose method hangs holds up neither Close of the Spread nor of the client for good, and the errors say so.
func TestCandidateThatHangs(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		client, err := recipes.Connect(t.Context(), srv.Addrs(), recipes.WithDialer(srv.Dialer()))
		require.NoError(t, err)
		s, err := spread.New(client, meeting, spread.WithID("a"))
		require.NoError(t, err)
		hangs, others := make(chan bool), 0
		_, err = s.Add(odd{id: "a", leads: func() bool { return <-hangs }})
		require.NoError(t, err)
		_, err = s.Add(odd{id: "a", name: "other", leads: func() bool { others++; return true }})
		require.NoError(t, err)
		require.NoError(t, s.Start())
		pass(2 * time.Minute)
		require.Greater(t, others, 20, "the other elections are not held up")
		require.ErrorContains(t, s.Close(), "a method of a candidate is still running after 10s")
		require.Empty(t, srv.Children(meeting))
		require.ErrorContains(t, client.Close(), "a callback is still running")
		close(hangs)
		require.NoError(t, s.Close())
		require.NoError(t, client.Close())
	})
}

// nilError is an error whose method panics for a nil pointer, which a candidate returns by mistake.
type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

// An error whose method panics does not end the process.
func TestCandidateWithAnErrorThatPanics(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var calls atomic.Int32
		s, err := spread.New(testclient.Connect(t, srv), meeting, spread.WithID("a"))
		require.NoError(t, err)
		list := func() ([]recipes.Participant, error) {
			calls.Add(1)
			var err *nilError
			return nil, err
		}
		_, err = s.Add(odd{id: "a", leads: func() bool { return false }, list: list})
		require.NoError(t, err)
		require.NoError(t, s.Start())
		pass(10 * time.Minute)
		require.Greater(t, calls.Load(), int32(1), "the Spread goes on")
		require.NoError(t, s.Close())
	})
}

// After Close no method of a candidate is called, also if a method of another one called Close.
func TestCloseInsideAMethod(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s, err := spread.New(testclient.Connect(t, zktest.NewServer(t)), meeting, spread.WithID("a"))
		require.NoError(t, err)
		var isClosed atomic.Bool
		var late atomic.Int32
		for i, leads := range []func() bool{
			func() bool {
				isClosed.Store(true)
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				return false
			},
			func() bool {
				if isClosed.Load() {
					late.Add(1)
				}
				return false
			},
		} {
			_, err = s.Add(odd{id: "a", name: fmt.Sprint(i), leads: leads})
			require.NoError(t, err)
		}
		require.NoError(t, s.Start())
		pass(time.Minute)
		require.True(t, isClosed.Load())
		require.Zero(t, late.Load())
	})
}

// Close reports a member that may still be listed, beside a method that still runs.
func TestCloseWithoutAnAnswer(t *testing.T) {
	for name, hangs := range map[string]bool{"alone": false, "and a method that hangs": true} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				client, err := recipes.Connect(t.Context(), srv.Addrs(), recipes.WithDialer(srv.Dialer()))
				require.NoError(t, err)
				s, err := spread.New(client, meeting, spread.WithID("a"))
				require.NoError(t, err)
				goOn := make(chan bool)
				_, err = s.Add(odd{id: "a", leads: func() bool { return hangs && <-goOn }})
				require.NoError(t, err)
				require.NoError(t, s.Start())
				pass(2 * time.Minute)
				remove := srv.Inject(func(r zktest.Request) zktest.Fault {
					if r.Op == zktest.OpDelete {
						return zktest.Fault{Refusal: zktest.RefuseTimeout}
					}
					return zktest.Fault{}
				})
				err = s.Close()
				require.ErrorIs(t, err, recipes.ErrNodeNotDeleted)
				require.ErrorContains(t, err, "spread: close "+meeting+": ")
				require.Equal(t, hangs, strings.Contains(err.Error(), "a method of a candidate is still running after 10s"), "%v", err)
				remove()
				close(goOn)
				pass(time.Minute)
				require.NoError(t, s.Close())
				require.Empty(t, srv.Children(meeting))
				require.NoError(t, client.Close())
			})
		})
	}
}
