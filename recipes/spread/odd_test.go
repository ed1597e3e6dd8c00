package spread_test

import (
	"context"
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
	"github.com/zkrecipes/zkrecipes/recipes/group"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/spread"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// odd is an election of another package. Its type is not comparable.
type odd struct {
	id    string
	leads func() bool
	list  func() ([]recipes.Participant, error)
	_     []int
}

func (o odd) ID() string          { return o.id }
func (o odd) HasLeadership() bool { return o.leads() }

func (o odd) Participants(context.Context) ([]recipes.Participant, error) { return o.list() }
func (o odd) TransferTo(context.Context, string) error                    { panic("transfer") }

// A nil candidate, one that can't say its ID, and one that was added before are refused, whatever their types are.
func TestOddCandidates(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		client := testclient.Connect(t, zktest.NewServer(t))
		s, err := spread.New(client, meeting, "a")
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
		require.ErrorContains(t, err, "added before")
		remove()
		again, err := s.Add(l)
		require.NoError(t, err)
		remove() // removes nothing any more
		_, err = s.Add(l)
		require.ErrorIs(t, err, recipes.ErrInvalidArgument)
		again()
		for range 2 {
			remove, err = s.Add(odd{id: "a"})
			require.NoError(t, err, "it can't be compared")
			defer remove()
		}
		require.NoError(t, s.Close())
	})
}

// A panic in a candidate of another package is logged, and the others are spread on.
func TestCandidateThatPanics(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		var log testkit.Log
		client := testclient.Connect(t, srv, recipes.WithLogger(log.Logger(slog.LevelWarn)))
		s, err := spread.New(client, meeting, "a")
		require.NoError(t, err)
		leads := func() bool { return true }
		for _, e := range []odd{
			{id: "a", leads: func() bool { panic("leads") }},
			{id: "a", leads: leads, list: func() ([]recipes.Participant, error) { panic("list") }},
			{id: "a", leads: leads, list: func() ([]recipes.Participant, error) { return []recipes.Participant{{ID: "b"}}, nil }},
			{id: "a", leads: leads, list: func() ([]recipes.Participant, error) { return nil, nil }},
		} {
			_, err := s.Add(e)
			require.NoError(t, err)
		}
		require.NoError(t, s.Start())
		other := start(t, srv, "b", 0, true)
		pass(10 * time.Minute)
		for _, name := range []string{"leads", "list", "transfer"} {
			require.Contains(t, log.String(), "panic: "+name)
		}
		require.Less(t, strings.Count(log.String(), "panic: leads"), 5, "not at each look")
		require.NoError(t, s.Close())
		require.Zero(t, other.leads())
	})
}

// Numbers that no process could lead do not count: another program has written them.
func TestMembersWithOddLoads(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := zktest.NewServer(t)
		for _, load := range []string{"9223372036854775807", "4000000000000000000", "-1", "5 ", "many"} {
			g, err := group.New(testclient.Connect(t, srv), meeting, group.WithID("x"+load))
			require.NoError(t, err)
			require.NoError(t, g.Join([]byte(load)))
		}
		first := start(t, srv, "p0", 4, true)
		pass(10 * time.Second)
		require.Equal(t, 4, first.leads())
		second := start(t, srv, "p1", 4, true)
		pass(time.Minute)
		require.Equal(t, 2, first.leads())
		require.Equal(t, 2, second.leads())
	})
}

// A candidate of another package may close the Spread or the client, and may end its goroutine: the Spread neither waits for itself nor
// stops without a word.
func TestCandidateThatClosesOrEndsItsGoroutine(t *testing.T) {
	for name, test := range map[string]struct {
		leads func(s *spread.Spread, client *recipes.Client) bool
		goes  bool // the Spread goes on
	}{
		"closes the Spread": {func(s *spread.Spread, _ *recipes.Client) bool { return s.Close() == nil }, false},
		"closes the client": {func(_ *spread.Spread, client *recipes.Client) bool { return client.Close() == nil }, false},
		"goexit":            {func(*spread.Spread, *recipes.Client) bool { runtime.Goexit(); return true }, true},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv := zktest.NewServer(t)
				client := testclient.Connect(t, srv)
				s, err := spread.New(client, meeting, "a")
				require.NoError(t, err)
				var calls, returned atomic.Int32
				_, err = s.Add(odd{id: "a", leads: func() bool {
					calls.Add(1)
					defer returned.Add(1)
					return test.leads(s, client)
				}})
				require.NoError(t, err)
				require.NoError(t, s.Start())
				pass(10 * time.Second)
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
		s, err := spread.New(client, meeting, "a")
		require.NoError(t, err)
		hangs := make(chan bool)
		_, err = s.Add(odd{id: "a", leads: func() bool { return <-hangs }})
		require.NoError(t, err)
		require.NoError(t, s.Start())
		pass(10 * time.Second)
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
		s, err := spread.New(testclient.Connect(t, srv), meeting, "a")
		require.NoError(t, err)
		list := func() ([]recipes.Participant, error) {
			calls.Add(1)
			var err *nilError
			return nil, err
		}
		_, err = s.Add(odd{id: "a", leads: func() bool { return true }, list: list})
		require.NoError(t, err)
		_, err = s.Add(odd{id: "a", leads: func() bool { return true }, list: list})
		require.NoError(t, err)
		require.NoError(t, s.Start())
		start(t, srv, "b", 0, true)
		pass(10 * time.Minute)
		require.Greater(t, calls.Load(), int32(1), "the Spread goes on")
		require.NoError(t, s.Close())
	})
}

// After Close no method of a candidate is called, also if a method of another one has called Close.
func TestCloseInsideAMethod(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s, err := spread.New(testclient.Connect(t, zktest.NewServer(t)), meeting, "a")
		require.NoError(t, err)
		var isClosed atomic.Bool
		var late atomic.Int32
		for _, leads := range []func() bool{
			func() bool {
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				isClosed.Store(true)
				return false
			},
			func() bool {
				if isClosed.Load() {
					late.Add(1)
				}
				return false
			},
		} {
			_, err = s.Add(odd{id: "a", leads: leads})
			require.NoError(t, err)
		}
		require.NoError(t, s.Start())
		pass(time.Minute)
		require.True(t, isClosed.Load())
		require.Zero(t, late.Load())
	})
}
