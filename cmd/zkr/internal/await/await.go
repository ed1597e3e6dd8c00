// Package await bounds calls without a context, such as those of zk.Conn.
package await

import "context"

// Call returns the result of fn, or the error of ctx if ctx ends first. In that case, fn keeps running in its
// goroutine until its connection is closed, and its result is dropped.
func Call[T any](ctx context.Context, fn func() (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() { // ends with fn
		value, err := fn()
		done <- result{value, err}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// Do is Call for a function that returns an error alone.
func Do(ctx context.Context, fn func() error) error {
	_, err := Call(ctx, func() (struct{}, error) { return struct{}{}, fn() })
	return err
}
