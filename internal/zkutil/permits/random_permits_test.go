package permits_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// twin is a semaphore of a few lists, beside one on servers.
type twin struct {
	*bubble.Bubble
	random  *rand.Rand
	clients []*recipes.Client
	shared  int        // the shared limit; -1 if each client has a limit of its own
	turns   []*request // in the queue
	above   []*request // exceed the shared limit, and are not in the queue
	held    []*recipes.Lease
	foreign []string // permits of another program
	made    int      // how many requests there were
}

// request is an AcquireN.
type request struct {
	id     string
	n      int
	limit  int // of the client
	done   <-chan bubble.Outcome[[]*recipes.Lease]
	cancel context.CancelFunc
}

const most = 6 // the highest limit

// limitOf returns the limit for a request.
func (w *twin) limitOf(r *request) int {
	if w.shared < 0 {
		return r.limit
	}
	return w.shared
}

func (w *twin) taken() int { return len(w.held) + len(w.foreign) }

// settle serves the queue in order. The first request gets its permits, leaves the queue if the limit forbids it, or waits.
func (w *twin) settle() {
	for len(w.turns) > 0 {
		first, limit := w.turns[0], w.limitOf(w.turns[0])
		switch {
		case w.taken()+first.n <= limit:
			require.Len(w, first.done, 1, "%d permits of %d, %d are taken", first.n, limit, w.taken())
			w.held = append(w.held, bubble.Granted(w, first.done)...)
		case first.n > limit && limit > 0:
			w.above = append(w.above, first)
		default:
			return
		}
		w.turns = w.turns[1:]
	}
}

// semaphore returns a semaphore of a random client, and the client's limit.
func (w *twin) semaphore(id string) (s *semaphore.InterProcessSemaphore, limit int) {
	i := w.random.IntN(len(w.clients))
	limit = most - 2*i
	if w.shared < 0 {
		return locks.SemaphoreOf(w.Bubble, w.clients[i], limit, semaphore.WithID(id)), limit
	}
	return locks.SemaphoreOf(w.Bubble, w.clients[i], limit, semaphore.WithID(id), semaphore.WithSharedLimit("/limit")), most
}

func (w *twin) acquire() {
	w.made++
	r := &request{id: fmt.Sprint("request ", w.made)}
	s, limit := w.semaphore(r.id)
	r.n, r.limit = 1+w.random.IntN(limit), limit
	ctx, cancel := context.WithCancel(w.Context())
	r.done, r.cancel = bubble.Start(ctx, locks.Many(s, r.n)), cancel
	w.turns = append(w.turns, r)
}

func (w *twin) try() {
	s, own := w.semaphore("try")
	n := 1 + w.random.IntN(own)
	limit := w.limitOf(&request{limit: own})
	held, err := s.TryAcquireN(w.Context(), n)
	w.held = append(w.held, held...)
	if isFree := len(w.turns) == 0 && w.taken()-len(held)+n <= limit; isFree {
		require.NoError(w, err)
		return
	}
	require.ErrorIs(w, err, recipes.ErrNotAcquired)
	require.Equal(w, len(w.turns) == 0 && n > limit, errors.Is(err, semaphore.ErrAboveLimit))
}

// setLimit changes the shared limit. Requests that it allows again join the queue at the tail, in any order.
func (w *twin) setLimit(limit int) {
	require.NoError(w, semaphore.SetSharedLimit(w.Context(), w.clients[0], "/limit", limit))
	bubble.Pass(bubble.Moment)
	w.shared = limit
	for _, znode := range slices.Concat(w.Queue(locks.Permits), w.Queue(locks.Turns)) {
		id, _, _ := w.Srv.Get(znode)
		if i := slices.IndexFunc(w.above, func(r *request) bool { return r.id == string(id) }); i >= 0 && w.above[i].n <= limit {
			w.turns = append(w.turns, w.above[i])
			w.above = slices.Delete(w.above, i, i+1)
		}
	}
	for _, r := range w.above {
		require.Greater(w, r.n, limit)
	}
}

// step does one thing, and compares the outcome.
func (w *twin) step() {
	waiting := slices.Concat(w.turns, w.above)
	switch kind := w.random.IntN(20); {
	case kind < 5:
		w.acquire()
	case kind < 7:
		w.try()
	case kind < 14 && len(w.held) > 0:
		i := w.random.IntN(len(w.held))
		w.Release(w.held[i])
		w.held = slices.Delete(w.held, i, i+1)
	case kind < 16 && len(waiting) > 0:
		r := waiting[w.random.IntN(len(waiting))]
		r.cancel()
		require.ErrorIs(w, bubble.Receive(w, r.done).Err, context.Canceled)
		w.turns = slices.DeleteFunc(w.turns, func(other *request) bool { return other == r })
		w.above = slices.DeleteFunc(w.above, func(other *request) bool { return other == r })
	case kind == 16:
		w.foreign = append(w.foreign, fmt.Sprintf("%s/_c_%d-lease-%010d", locks.Permits, len(w.foreign), w.random.IntN(1<<31)))
		w.Srv.Put(w.foreign[len(w.foreign)-1], nil)
	case kind == 17 && len(w.foreign) > 0:
		w.Srv.Delete(w.foreign[0])
		w.foreign = w.foreign[1:]
	case kind >= 18 && w.shared >= 0:
		w.setLimit(w.random.IntN(most + 1))
	}
	w.compare()
}

func (w *twin) compare() {
	bubble.Pass(bubble.Moment)
	w.settle()
	for _, r := range slices.Concat(w.turns, w.above) {
		require.Empty(w, r.done, "%d permits of %d, %d are taken", r.n, w.limitOf(r), w.taken())
	}
	require.Len(w, w.Queue(locks.Permits), w.taken())
	require.Len(w, w.Queue(locks.Turns), len(w.turns))
}

// Whatever requests, releases and changes of the limit come in whatever order, the permits are those of the twin: requests are served in
// order, each by the limit that its client states, and no request waits that may be served.
func TestRandomPermits(t *testing.T) {
	for seed := range testkit.Shorter[uint64](60, 20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { bubble.Run(t, func(b *bubble.Bubble) { playRandomPermits(b, seed) }) })
	}
}

func playRandomPermits(b *bubble.Bubble, seed uint64) {
	b.Helper()
	w := &twin{Bubble: b, random: rand.New(rand.NewPCG(seed, 0)), clients: []*recipes.Client{b.Client(), b.Client(), b.Client()}, shared: -1}
	if seed%2 > 0 {
		w.setLimit(most)
	}
	for range 60 {
		w.step()
	}
	for len(w.held)+len(w.foreign)+len(w.turns)+len(w.above) > 0 {
		for _, path := range w.foreign {
			b.Srv.Delete(path)
		}
		locks.ReleaseAll(b, w.held)
		w.held, w.foreign = nil, nil
		w.compare()
		if w.shared >= 0 {
			w.setLimit(most)
			w.compare()
		}
	}
}
