package recipe

import (
	"context"
	"reflect"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
)

// queuesOf has a function for each type of lock that a multilock can join together with others. Only the initialisation of the locks'
// packages writes it.
var queuesOf = map[reflect.Type]func(ctx context.Context, lock any) *queue.Queue{} //nolint:gochecknoglobals // a registry

// RegisterQueue registers a function that returns the queue which Acquire of a lock, with a context, would join. It returns nil for a lock
// that only its own Acquire can acquire. A method of the lock would be part of the public surface.
func RegisterQueue[L any](of func(ctx context.Context, lock L) *queue.Queue) {
	queuesOf[reflect.TypeFor[L]()] = func(ctx context.Context, lock any) *queue.Queue { return of(ctx, lock.(L)) }
}

// QueueOf returns the queue of a lock by the function registered for its type, and nil for other types.
func QueueOf(ctx context.Context, lock any) *queue.Queue {
	if of := queuesOf[reflect.TypeOf(lock)]; of != nil {
		return of(ctx, lock)
	}
	return nil
}
