package election

import (
	"errors"
	"fmt"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/callbacks"
)

// Callbacks returns a new, empty order of callbacks. Inside such callbacks, Wait of the candidate does not wait.
func (c *Candidate) Callbacks() *callbacks.Order {
	return c.queue.Session.CallbacksIn(c.scope)
}

// Call runs a function of the user in a separate goroutine and waits for the end of the function. Inside the function, Wait of the
// candidate does not wait. onPanic turns a panic into the error that Call returns, also a panic in a method of the function's error. A
// function that ends its goroutine (runtime.Goexit) also causes an error.
func (c *Candidate) Call(fn func() error, onPanic func(value any, stack []byte) error) (err error) {
	err = errors.New("the function ended its goroutine")
	done := make(chan struct{})
	go func() { // ends with the user's function; joined below
		defer close(done)
		defer func() {
			if v := recover(); v != nil {
				stack := zkutil.StackForLogs()
				if err = onPanic(v, stack); !zkutil.IsUsable(err) { // those of v
					err = onPanic(fmt.Sprint(v), stack)
				}
			}
		}()
		zkutil.RunUserCode(func() {
			err = fn()
			zkutil.TryMethods(err)
		}, c.queue.Session.Scope(), c.scope)
	}()
	<-done
	return err
}
