package callbacks_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/callbacks"
)

func ignore(any, []byte) {}

func TestCallbacksRunInOrderOneAtATime(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		runner := callbacks.NewRunner(zkutil.NewScope(), ignore)
		order := runner.NewOrder(0)
		var ran []int // plain: one at a time
		running := false
		for i := range 100 {
			order.Post(func() {
				if running {
					t.Error("two at once")
				}
				running = true
				time.Sleep(time.Millisecond) //nolint:forbidigo // virtual time
				ran = append(ran, i)
				running = false
				if i == 50 {
					order.Post(func() { ran = append(ran, 100) }) // from inside one
				}
			})
		}
		<-runner.Finish()
		require.Len(t, ran, 101)
		for i, n := range ran {
			require.Equal(t, i, n)
		}
	})
}

// A hanging callback of one order does not hold up another order.
func TestOrdersAreIndependent(t *testing.T) {
	testkit.Bubble(t, func(*testing.T) {
		runner := callbacks.NewRunner(zkutil.NewScope(), ignore)
		hang, ran := make(chan struct{}), make(chan struct{})
		runner.NewOrder(0).Post(func() { <-hang })
		runner.NewOrder(0).Post(func() { close(ran) })
		<-ran
		close(hang)
		<-runner.Finish()
	})
}

// A panic is reported, and neither a panic nor runtime.Goexit stops the order.
func TestFunctionThatDoesNotReturnNormallyIsContained(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		var mu sync.Mutex // protects panics: orders run side by side
		var panics []string
		runner := callbacks.NewRunner(zkutil.NewScope(), func(value any, stack []byte) {
			mu.Lock()
			defer mu.Unlock()
			panics = append(panics, fmt.Sprint(value))
			if !strings.Contains(string(stack), "callbacks_test.go") {
				panics = append(panics, "without its stack")
			}
		})
		order, hasRun := runner.NewOrder(0), false
		order.Post(func() { panic("out of order") })
		order.Post(runtime.Goexit)
		order.Post(func() { hasRun = true })
		runner.Call(0, runtime.Goexit)
		runner.Call(0, func() { panic("called") })
		synctest.Wait()
		require.True(t, hasRun)
		require.ElementsMatch(t, []string{"out of order", "called"}, panics)
		<-runner.Finish()
	})
}

// Calls beyond MaxQueued are left out. A finished runner accepts no function, and leaves none out.
func TestTryPostLeavesOutCallsBeyondTheBound(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		runner := callbacks.NewRunner(zkutil.NewScope(), ignore)
		order, hang, ran := runner.NewOrder(0), make(chan struct{}), 0
		order.Post(func() { <-hang })
		synctest.Wait() // the function runs, and is not in the queue
		for range callbacks.MaxQueued {
			require.False(t, order.TryPost(func() { ran++ }))
		}
		require.True(t, order.TryPost(func() { ran++ }))
		barrier := order.Barrier()
		close(hang)
		<-barrier
		require.Equal(t, callbacks.MaxQueued, ran)
		<-runner.Finish()
		require.False(t, order.TryPost(func() { ran++ }))
		require.Equal(t, callbacks.MaxQueued, ran)
		<-order.Barrier()
	})
}

// Functions run inside the scopes of the runner and the order.
func TestFunctionsRunInsideTheScopes(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		own, candidate := zkutil.NewScope(), zkutil.NewScope()
		runner := callbacks.NewRunner(own, ignore)
		runner.NewOrder(candidate).Post(func() {
			require.True(t, own.IsOnStack())
			require.True(t, candidate.IsOnStack())
		})
		runner.NewOrder(0).Post(func() { require.False(t, candidate.IsOnStack()) })
		<-runner.Finish()
	})
}
