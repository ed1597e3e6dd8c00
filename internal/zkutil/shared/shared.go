package shared

import (
	"runtime"
	"sync"
	"weak"
)

// Values are shared values by key. A value is dropped after its last user, because a program may use any number of keys.
type Values struct {
	mu    sync.Mutex  // protects byKey
	byKey map[any]any // weak pointers
}

// NewValues returns an empty set of values.
func NewValues() *Values { return &Values{byKey: map[any]any{}} }

// Value returns the value for key, and creates a value if none exists or the old one is out of use. The type of a key implies the
// type of its values.
func Value[T any](v *Values, key any, create func() *T) *T {
	v.mu.Lock()
	defer v.mu.Unlock()
	if pointer, ok := v.byKey[key].(weak.Pointer[T]); ok {
		if value := pointer.Value(); value != nil {
			return value
		}
	}
	value := create()
	pointer := weak.Make(value)
	v.byKey[key] = pointer
	runtime.AddCleanup(value, func(v *Values) { v.drop(key, pointer) }, v)
	return value
}

// drop removes a value that is out of use, unless another value has its key now.
func (v *Values) drop(key, pointer any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.byKey[key] == pointer {
		delete(v.byKey, key)
	}
}
