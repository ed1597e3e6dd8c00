package peer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestLocate(t *testing.T) {
	names := []string{"_c_b-lock-0000000003", "_c_c-lock-0000000001", "_c_a-lock-0000000002"}
	require.Equal(t, place{ahead: 0, listed: true}, locate(names, names[1]))
	require.Equal(t, place{ahead: 1, listed: true, predecessor: names[1]}, locate(names, names[2]))
	require.Equal(t, place{ahead: 2, listed: true, predecessor: names[2]}, locate(names, names[0]))
	require.Equal(t, place{ahead: 3, predecessor: names[0]}, locate(names, "_c_d-lock-0000000004"))
}

// Each peer's second contender waits for the first, in its session and in another, and both sessions close with nothing left.
func TestSecondContenderWaits(t *testing.T) {
	server := zktest.NewServer(t)
	for _, p := range OnZooKeeper() {
		if p.Name == Unchecked {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			here, there := open(t, p, server), open(t, p, server)
			for _, other := range []Session{here, there} {
				first, second := contender(t, here, "/lock"), contender(t, other, "/lock")
				require.NoError(t, first.Lock(t.Context()))
				acquired := make(chan error, 1)
				go func() { acquired <- second.Lock(context.WithoutCancel(t.Context())) }() // ends with the lock
				select {
				case err := <-acquired:
					require.Fail(t, "two holders", "%v", err)
				case <-time.After(100 * time.Millisecond):
				}
				require.NoError(t, first.Unlock())
				require.NoError(t, testkit.Receive(t, acquired, "the lock"))
				require.NoError(t, second.Unlock())
			}
			require.NoError(t, here.Close())
			require.NoError(t, there.Close())
		})
	}
}

// The waiters of a session that is closed fail, which is how a queue of thousands is given up.
func TestWaiterOfAClosedSessionFails(t *testing.T) {
	server := zktest.NewServer(t)
	for _, p := range OnZooKeeper() {
		if p.Name == Unchecked {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			holder, waiting := open(t, p, server), open(t, p, server)
			require.NoError(t, contender(t, holder, "/closed").Lock(t.Context()))
			waiter := contender(t, waiting, "/closed")
			acquired := make(chan error, 1)
			log := server.Observe()
			defer log.Stop()
			go func() { acquired <- waiter.Lock(context.WithoutCancel(t.Context())) }() // ends with the session
			testkit.Eventually(t, func() bool { return log.Count(zktest.OpGetData) > 0 }, "the read that sets the watch")
			require.NoError(t, waiting.Close())
			require.Error(t, testkit.Receive(t, acquired, "the error"))
			require.NoError(t, holder.Close())
		})
	}
}

// partOf is a part of a basket that records its calls.
type partOf struct {
	calls *[]string
	name  string
	err   error // of Lock
}

func (p partOf) Lock(context.Context) error {
	*p.calls = append(*p.calls, "lock "+p.name)
	return p.err
}

func (p partOf) Unlock() error {
	*p.calls = append(*p.calls, "unlock "+p.name)
	return nil
}

func TestOneByOneUnlocksInReverse(t *testing.T) {
	var calls []string
	a, b := partOf{&calls, "a", nil}, partOf{&calls, "b", nil}
	require.NoError(t, oneByOne{a, b}.Lock(t.Context()))
	require.NoError(t, oneByOne{a, b}.Unlock())
	require.Equal(t, []string{"lock a", "lock b", "unlock b", "unlock a"}, calls)
	calls = nil
	broken := errors.New("broken")
	require.ErrorIs(t, oneByOne{a, partOf{&calls, "c", broken}, b}.Lock(t.Context()), broken)
	require.Equal(t, []string{"lock a", "lock c", "unlock a"}, calls)
}

func open(t *testing.T, p Peer, server *zktest.Server) Session {
	t.Helper()
	s, err := p.Open(testkit.Context(t), server.Addr())
	require.NoError(t, err)
	return s
}

func contender(t *testing.T, s Session, path string) Contender {
	t.Helper()
	c, err := s.Contender(t.Context(), path)
	require.NoError(t, err)
	return c
}
