package session

import (
	"runtime"
	"sync"
	"weak"
)

// sharedValues are what several recipes of a session use together, by key. Nothing of it is kept after its
// last user, because a program may use any number of paths.
type sharedValues struct {
	mu     sync.Mutex  // protects values
	values map[any]any // weak pointers
}

// Share returns the value that the session has under key. If there is none, or nobody uses it any more, it
// is made. The type of a key stands for the type of its values.
func Share[T any](s *Session, key any, create func() *T) *T {
	shared := &s.shared
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if pointer, ok := shared.values[key].(weak.Pointer[T]); ok {
		if value := pointer.Value(); value != nil {
			return value
		}
	}
	value := create()
	pointer := weak.Make(value)
	shared.values[key] = pointer
	runtime.AddCleanup(value, func(shared *sharedValues) { shared.forget(key, pointer) }, shared)
	return value
}

// forget removes a value that nobody uses any more, unless another one has come under its key.
func (v *sharedValues) forget(key, pointer any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.values[key] == pointer {
		delete(v.values, key)
	}
}
