package interop_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
)

// TestBasketsBesideCurator has multilocks of this library, Curator's InterProcessMultiLock and single mutexes draw their locks from the same six
// paths, each with a session of its own. Each lock guards the counter of its path in a file. No increment is lost, and none of them waits for
// ever, because all take their locks in the order of the paths.
func TestBasketsBesideCurator(t *testing.T) {
	t.Parallel()
	const each, seed = 3, 7
	rounds := testkit.Shorter(150, 30)
	parent, folder := plainPath(t), t.TempDir()
	var paths []string
	for i := range 6 {
		name := fmt.Sprintf("item-%d", i)
		paths = append(paths, parent+"/"+name)
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte("0"), 0o600))
	}
	w := theWorld(t)
	ctx, cancel := context.WithTimeout(t.Context(), soakTime)
	defer cancel()
	increments := make(chan int)
	failed := make(chan error, 3*each)
	report := func(n int, err error) {
		if err != nil {
			failed <- err
		}
		increments <- n
	}
	for i := range each {
		several, one := rand.New(rand.NewPCG(seed, uint64(i))), rand.New(rand.NewPCG(seed+1, uint64(i)))
		ours, single := connect(t, options{}), connect(t, options{})
		go func() { // joined by the sum below
			report(soakBaskets(ctx, ours, folder, rounds, func() []string {
				return slices.DeleteFunc(slices.Clone(paths), func(string) bool { return several.IntN(2) == 0 })
			}))
		}()
		go func() { // the same
			report(soakBaskets(ctx, single, folder, rounds, func() []string { return []string{paths[one.IntN(len(paths))]} }))
		}()
		peer := openJava(t, options{}).(agentSession)
		name := unique("multilock")
		peer.process.Call(t, append([]string{"multilock", name, peer.client}, paths...)...)
		go func() { // the same
			words, err := w.java.GoFor(soakTime, "soak", name, folder, strconv.Itoa(seed+i), strconv.Itoa(rounds)).Result()
			if err != nil {
				report(0, err)
				return
			}
			report(strconv.Atoi(words[0]))
		}()
	}
	want := 0
	for range 3 * each {
		want += <-increments
	}
	close(failed)
	for err := range failed {
		require.NoError(t, err)
	}
	got := 0
	for _, path := range paths {
		n, err := number64(filepath.Join(folder, filepath.Base(path)))
		require.NoError(t, err)
		got += int(n)
		require.Empty(t, queue(t, path))
	}
	t.Logf("%d increments", got)
	require.Equal(t, want, got, "an increment is lost")
	require.Greater(t, got, 3*each*rounds/2)
}

// soakBaskets increments the counters of some paths under their locks.
func soakBaskets(ctx context.Context, client *recipes.Client, folder string, rounds int, draw func() []string) (increments int, err error) {
	for range rounds {
		wanted := draw()
		if len(wanted) == 0 {
			continue
		}
		m, err := multilock.NewMutexes(client, wanted)
		if err != nil {
			return increments, err
		}
		lease, err := m.Acquire(ctx)
		if err != nil {
			return increments, err
		}
		for _, path := range wanted {
			counter := filepath.Join(folder, filepath.Base(path))
			n, err := number64(counter)
			if err == nil {
				err = os.WriteFile(counter, []byte(strconv.FormatInt(n+1, 10)), 0o600)
			}
			if err != nil {
				return increments, err
			}
			increments++
		}
		if err := lease.Release(); err != nil {
			return increments, err
		}
	}
	return increments, nil
}
