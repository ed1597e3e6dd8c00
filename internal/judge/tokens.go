package judge

import (
	"cmp"
	"slices"
)

// Tokens judges the tokens of a path, grant after grant. The zero value is ready for use, but not concurrently.
type Tokens[T any] struct {
	granted []grant[T] // by token
}

type grant[T any] struct {
	token int64
	term  T
}

// Grant records a grant. It reports whether the token is higher than all earlier tokens. If not, before is the term with the
// nearest token equal or higher.
func (k *Tokens[T]) Grant(token int64, term T) (before T, grows bool) {
	i, _ := slices.BinarySearchFunc(k.granted, token, func(g grant[T], token int64) int { return cmp.Compare(g.token, token) })
	if grows = i == len(k.granted); !grows {
		before = k.granted[i].term
	}
	k.granted = slices.Insert(k.granted, i, grant[T]{token, term})
	return before, grows
}

// Highest returns the highest granted token, 0 if no token was granted.
func (k *Tokens[T]) Highest() int64 {
	if len(k.granted) == 0 {
		return 0
	}
	return k.granted[len(k.granted)-1].token
}

// Store is a resource guarded by fencing: it refuses a token lower than any earlier token. The zero value is ready for use, but
// not concurrently.
type Store struct {
	highest int64
	stale   int
}

// Write reports whether the store accepts a write with this token.
func (s *Store) Write(token int64) bool {
	if token < s.highest {
		s.stale++
		return false
	}
	s.highest = token
	return true
}

// Highest returns the token of the latest accepted write.
func (s *Store) Highest() int64 { return s.highest }

// Stale returns the number of refused writes.
func (s *Store) Stale() int { return s.stale }
