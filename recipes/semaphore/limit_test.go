package semaphore_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/internal/testkit/schedule"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The limit holds under acquisitions that each meet a fault: a lost request, a lost or slow answer, the end of the session,
// or the deletion of one of the znodes (kazoo 213, 429). With -exhaustive there are 100,000 acquisitions.
func TestLimitUnderFaultedOperations(t *testing.T) {
	const batch = 200
	operations := testkit.Shorter(1000, 50)
	if *testkit.Exhaustive {
		operations = 100_000
	}
	var sum faulted
	for seed := *schedule.FirstSeed; sum.operations < operations; seed++ {
		bubble.Run(t, func(b *bubble.Bubble) { faultedOperations(b, seed, batch, &sum) })
		if t.Failed() {
			t.Fatalf("to see it again: go test ./recipes/semaphore -run %s -short -seed %d", t.Name(), seed)
		}
	}
	t.Logf("%d operations that met a fault, of %d, with %d permits: the limit was reached %d times, and never exceeded",
		sum.operations, sum.all, sum.permits, sum.full)
}

// faulted is how many operations there were.
type faulted struct{ operations, all, permits, full int }

const (
	faultedLimit   = 3
	faultedClients = 4
)

// faultedOperations has clients take permits, until so many of these operations have met a fault.
func faultedOperations(b *bubble.Bubble, seed uint64, operations int, sum *faulted) {
	b.Helper()
	c := &counter{random: rand.New(rand.NewPCG(seed, 0)), met: map[int64]int{}, gone: map[string]bool{}, want: operations}
	var clients []*recipes.Client
	for range faultedClients {
		clients = append(clients, b.Client())
	}
	stop := b.Srv.Inject(func(r zktest.Request) zktest.Fault { return c.strike(b, r) })
	done := make(chan error, len(clients))
	for i, client := range clients {
		s, random := locks.SemaphoreOf(b, client, faultedLimit), rand.New(rand.NewPCG(seed, uint64(1+i)))
		go func() { // ends when enough operations were made; joined below
			var err error
			for err == nil && !c.hasEnough() {
				err = c.operate(b.Context(), client, s, random)
			}
			done <- err
		}()
	}
	for range clients {
		select {
		case err := <-done:
			require.NoError(b, err, "seed %d", seed)
		case <-time.After(24 * time.Hour):
			require.FailNow(b, "stuck", "%v %v", b.Queue(locks.Turns), b.Queue(locks.Permits))
		}
	}
	stop()
	bubble.Pass(2 * time.Minute) // for background work, and for sessions unknown to their clients
	locks.RequireNoPermits(b)
	sum.operations += c.faulted
	sum.all += c.all
	sum.permits += c.permits
	sum.full += c.full
}

// counter counts who holds permits, and which operations meet faults.
type counter struct {
	mu      sync.Mutex // protects what is below
	random  *rand.Rand
	met     map[int64]int   // faults, by session
	gone    map[string]bool // znodes that were taken from their owners
	held    []*recipes.Lease
	want    int
	faulted int
	all     int
	permits int
	full    int
}

func (c *counter) hasEnough() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.faulted >= c.want
}

// strike makes one of four requests fail.
func (c *counter) strike(b *bubble.Bubble, r zktest.Request) zktest.Fault {
	if r.Session == 0 || r.Op == zktest.OpPing || r.Op == zktest.OpConnect {
		return zktest.Fault{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.random.IntN(4) > 0 {
		return zktest.Fault{}
	}
	c.met[r.Session]++
	session, isThere := b.Srv.Session(r.Session)
	switch kind := c.random.IntN(40); {
	case kind == 0 && isThere:
		c.take(session.Ephemerals...)
		b.Srv.Expire(r.Session)
	case kind < 8 && len(session.Ephemerals) > 0:
		znode := session.Ephemerals[c.random.IntN(len(session.Ephemerals))]
		c.take(znode)
		b.Srv.Delete(znode)
		return zktest.Fault{Delay: c.upTo20ms()} // so that another contender is first, if that was the turn
	case kind < 16:
		return zktest.Fault{Lost: zktest.RequestLost}
	case kind < 24:
		return zktest.Fault{Lost: zktest.ReplyLost}
	default:
		return zktest.Fault{Delay: c.upTo20ms()}
	}
	return zktest.Fault{}
}

func (c *counter) upTo20ms() time.Duration {
	return time.Duration(c.random.IntN(20)) * time.Millisecond
}

func (c *counter) take(znodes ...string) {
	for _, znode := range znodes {
		c.gone[znode] = true
	}
}

// operate takes some permits, or tries to, and gives them back. A permit may be lost meanwhile.
func (c *counter) operate(ctx context.Context, client *recipes.Client, s *semaphore.InterProcessSemaphore, random *rand.Rand) error {
	session, before := client.Conn().SessionID(), 0
	c.mu.Lock()
	before = c.met[session]
	c.mu.Unlock()
	acquire, n := s.AcquireN, 1+random.IntN(faultedLimit)
	if random.IntN(3) == 0 {
		acquire = s.TryAcquireN
	}
	held, err := acquire(ctx, n)
	switch {
	case errors.Is(err, recipes.ErrNotAcquired) && len(held) == 0:
		err = nil
	case err == nil && len(held) != n:
		err = fmt.Errorf("%d permits in place of %d", len(held), n)
	case err == nil:
		err = c.enter(held)
	}
	if err != nil {
		return err
	}
	time.Sleep(time.Duration(random.IntN(30)) * time.Millisecond) //nolint:forbidigo // virtual time
	for _, lease := range held {
		if released := lease.Release(); released != nil && !isLoss(released) {
			return released
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all++
	if c.met[session] > before {
		c.faulted++
	}
	return nil
}

func isLoss(err error) bool {
	return errors.Is(err, recipes.ErrNodeDeleted) || errors.Is(err, recipes.ErrSessionLost) || errors.Is(err, recipes.ErrNodeNotDeleted)
}

// enter counts the valid permits, except those whose znodes were deleted, because no client can know that at once.
func (c *counter) enter(held []*recipes.Lease) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.permits += len(held)
	c.held = append(c.held, held...)
	var standing []*recipes.Lease
	for _, lease := range c.held {
		if lease.Context().Err() == nil && !c.gone[lease.Path()] {
			standing = append(standing, lease)
		}
	}
	c.held = standing
	switch {
	case len(standing) > faultedLimit:
		return fmt.Errorf("%d permits are held, the limit is %d", len(standing), faultedLimit)
	case len(standing) == faultedLimit:
		c.full++
	}
	return nil
}

// Ten goroutines of each of three clients, none of whom may exceed the limit, and tries among them (kazoo 213, 429).
func TestLimitUnderACrowd(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		const limit, clients, each = 4, 3, 10
		var all room
		done := make(chan error, clients*each)
		for range clients {
			s := locks.SemaphoreOf(b, b.Client(), limit)
			for worker := range each {
				go func() { // ends with its rounds; joined below
					var err error
					for round := range testkit.Shorter(50, 10) {
						acquire := s.AcquireN
						if round%3 == 0 {
							acquire = s.TryAcquireN
						}
						err = errors.Join(err, all.stay(b.Context(), acquire, 1+(worker+round)%limit))
					}
					done <- err
				}()
			}
		}
		join(b, done)
		require.Equal(b, limit, all.most)
	})
}
