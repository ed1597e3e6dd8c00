package recipes_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Lost requests and answers, cut connections, stopped servers, expired sessions and cancelled calls: no create ever crosses the
// limit, the only errors are those of the contexts and of a full session, and afterwards the session has room for as many
// contenders as before.
func TestBudgetThroughFaults(t *testing.T) {
	for seed := range uint64(testkit.Shorter(100, 10)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			bubble.Run(t, func(b *bubble.Bubble) { playBudgetFaults(b, rand.New(rand.NewPCG(seed, 1))) })
		})
	}
}

const (
	faultPaths   = 5
	faultRoom    = 3 // contenders that a session has room for
	faultCallers = 20
)

func playBudgetFaults(b *bubble.Bubble, random *rand.Rand) {
	limit := faultRoom * costOf("/0", "lock-")
	requireBudget(b, limit)
	clients := []*recipes.Client{
		b.Troubled(recipes.WithMaxSessionBytes(limit)), b.Troubled(recipes.WithMaxSessionBytes(limit)),
	}
	var callers sync.WaitGroup
	for i := range faultCallers {
		own := rand.New(rand.NewPCG(random.Uint64(), 2))
		client := clients[i%len(clients)]
		callers.Go(func() { // ends after its rounds; joined below
			for range 10 {
				m := mutexOn(b, client, fmt.Sprintf("/%d", own.IntN(faultPaths)))
				contend(b, own, m)
			}
		})
	}
	done := make(chan struct{})
	go func() { // ends with the callers
		callers.Wait()
		close(done)
	}()
	for !zkutil.Within(done, time.Duration(random.IntN(1000))*time.Millisecond) {
		makeTrouble(b, random, clients)
	}
	b.Srv.Heal()
	require.NoError(b, b.Srv.Restart())
	bubble.Pass(time.Minute)
	require.Empty(b, ephemerals(b.Srv, "/", map[int64]int{}), "a ghost")
	for _, client := range clients {
		requireRoom(b, client)
	}
}

// requireRoom requires that a client which holds nothing has room for so many contenders, and no more.
func requireRoom(b *bubble.Bubble, client *recipes.Client) {
	b.Helper()
	var held []bubble.Holder
	for i := range faultRoom {
		held = append(held, bubble.Acquire(b, mutexOn(b, client, fmt.Sprintf("/%d", i)).Acquire))
	}
	requireFull(b, mutexOn(b, client, "/z").Acquire)
	b.Release(held...)
}

// contend acquires for a random time at most, holds for a moment, and releases.
func contend(b *bubble.Bubble, random *rand.Rand, m *mutex.InterProcessMutex) {
	ctx, cancel := context.WithTimeout(b.Context(), time.Duration(random.IntN(20_000))*time.Millisecond)
	defer cancel()
	acquire := m.Acquire
	if random.IntN(5) == 0 {
		acquire = m.TryAcquire
	}
	lease, err := acquire(ctx)
	pause := time.Duration(random.IntN(300)) * time.Millisecond
	if err == nil {
		zkutil.Within(lease.Context().Done(), pause)
		_ = lease.Release() // may be lost
		return
	}
	if !zkutil.IsAny(err, recipes.ErrSessionFull, recipes.ErrNotAcquired, context.DeadlineExceeded) {
		b.Errorf("%v", err)
	}
	zkutil.Pause(b.Context(), pause)
}

// makeTrouble is one fault.
func makeTrouble(b *bubble.Bubble, random *rand.Rand, clients []*recipes.Client) {
	ops := []zktest.Op{zktest.OpCreate2, zktest.OpDelete, zktest.OpSync, zktest.OpGetChildren2}
	op := ops[random.IntN(len(ops))]
	session := clients[random.IntN(len(clients))].Conn().SessionID()
	switch random.IntN(6) {
	case 0:
		b.Srv.DropReply(op, 1)
	case 1:
		b.Srv.DropRequest(op, 1)
	case 2:
		b.Srv.DropAnswer(op, 1)
	case 3:
		b.Srv.Disconnect()
	case 4:
		over := b.Outage()
		bubble.Pass(time.Duration(random.IntN(8_000)) * time.Millisecond)
		over()
	case 5:
		if _, alive := b.Srv.Session(session); alive {
			b.Srv.Expire(session)
		}
	}
}
