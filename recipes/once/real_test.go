package once_test

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
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/once"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Five hosts in real time, over TCP, with every tenth answer lost: each occurrence is run once, with a token greater than that of
// the occurrence before.
func TestHostsInRealTime(t *testing.T) {
	const hosts = 5
	occurrences := testkit.Shorter(30, 10)
	srv := zktest.NewServer(t)
	var mu sync.Mutex
	dice := rand.New(rand.NewPCG(1, 0))
	calm := srv.Inject(func(r zktest.Request) zktest.Fault {
		mu.Lock()
		defer mu.Unlock()
		if r.Op != zktest.OpConnect && r.Op != zktest.OpPing && dice.IntN(10) == 0 {
			return zktest.Fault{Lost: zktest.ReplyLost}
		}
		return zktest.Fault{}
	})
	runs := map[string][]int64{} // tokens
	var all sync.WaitGroup
	for host := range hosts {
		o, err := once.New(testclient.Dial(t, srv.Addrs(), recipes.WithSessionTimeout(40*time.Second)), "/jobs/a", once.WithID(fmt.Sprint("host-", host)))
		require.NoError(t, err)
		all.Go(func() {
			for n := range occurrences {
				occurrence := fmt.Sprint(n)
				err := o.Do(t.Context(), occurrence, func(_ context.Context, lease *recipes.Lease) error {
					mu.Lock()
					defer mu.Unlock()
					runs[occurrence] = append(runs[occurrence], lease.FencingToken())
					return nil
				})
				if err != nil && !errors.Is(err, once.ErrDone) && !errors.Is(err, once.ErrSuperseded) {
					t.Errorf("%s: %v", occurrence, err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { // ends with the hosts; joined below
		all.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(testkit.Patience):
		t.Error("the hosts do not come to an end")
	}
	calm()
	<-done
	latest := int64(0)
	for n := range occurrences {
		tokens := runs[fmt.Sprint(n)]
		require.Len(t, tokens, 1, n)
		require.Greater(t, tokens[0], latest)
		latest = tokens[0]
	}
}
