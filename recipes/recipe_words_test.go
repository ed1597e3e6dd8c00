package recipes_test

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/once"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// The words for recipes are a closed list without spaces, and a queue has one of the same words as its kind.
func TestRecipeWords(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		var mu sync.Mutex
		words := make(map[string]string) // path to the word in its traces
		client := b.Client(recipes.WithTrace(&recipes.Trace{AcquireEnd: func(_ context.Context, e recipes.AcquireEnd) {
			mu.Lock()
			defer mu.Unlock()
			words[e.Path] = e.Recipe
		}}))
		ctx := b.Context()
		bubble.Acquire(b, made(mutex.New(client, "/mutex")).Acquire)
		bubble.Acquire(b, made(rwlock.New(client, "/read")).ReadLock().Acquire)
		bubble.Acquire(b, made(rwlock.New(client, "/write")).WriteLock().Acquire)
		bubble.Acquire(b, made(semaphore.New(client, "/semaphore", 1)).Acquire)
		bubble.Acquire(b, made(semaphore.NewMutex(client, "/semaphore-mutex")).Acquire)
		l := made(latch.New(client, "/latch"))
		require.NoError(b, l.Start())
		s := made(selector.New(client, "/selector", func(ctx context.Context, _ *recipes.Lease) error { <-ctx.Done(); return nil }))
		require.NoError(b, s.Start())
		o := made(once.New(client, "/once"))
		go func() { // ends with the client
			_ = o.Do(ctx, "1", func(ctx context.Context, _ *recipes.Lease) error { <-ctx.Done(); return nil })
		}()
		bubble.Pass(time.Second)
		mu.Lock()
		all := slices.Sorted(maps.Values(words))
		mu.Unlock()
		require.Equal(b, []string{"latch", "mutex", "once", "read-lock", "selector", "semaphore", "semaphore-mutex", "write-lock"}, all)

		for path, kind := range map[string]string{
			"/mutex": inspect.KindMutex, "/selector": inspect.KindMutex, "/once": inspect.KindMutex, "/latch": inspect.KindLatch,
			"/read": inspect.KindRWLock, "/write": inspect.KindRWLock,
			"/semaphore": inspect.KindSemaphore, "/semaphore-mutex": inspect.KindSemaphore,
		} {
			queue, err := inspect.Read(ctx, client, path)
			require.NoError(b, err)
			require.Equal(b, kind, queue.Kind, path)
		}
		require.Subset(b, append(all, "rwlock", "unknown"),
			[]string{inspect.KindMutex, inspect.KindLatch, inspect.KindSemaphore, inspect.KindRWLock, inspect.KindUnknown})
	})
}
