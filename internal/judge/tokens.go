package judge

import (
	"cmp"
	"slices"
)

// Tokens judges the tokens of one path, grant after grant. The zero value is ready for use, by one goroutine at a time.
type Tokens[T any] struct {
	granted []grant[T] // by token
}

type grant[T any] struct {
	token int64
	term  T
}

// Grant notes a grant. It reports whether the token is higher than all before it. If not, before is the term with the nearest
// token that is not lower.
func (k *Tokens[T]) Grant(token int64, term T) (before T, grows bool) {
	i, _ := slices.BinarySearchFunc(k.granted, token, func(g grant[T], token int64) int { return cmp.Compare(g.token, token) })
	if grows = i == len(k.granted); !grows {
		before = k.granted[i].term
	}
	k.granted = slices.Insert(k.granted, i, grant[T]{token, term})
	return before, grows
}

// Highest is the highest token that was granted, 0 if there is none.
func (k *Tokens[T]) Highest() int64 {
	if len(k.granted) == 0 {
		return 0
	}
	return k.granted[len(k.granted)-1].token
}

// Store is a resource that fencing guards: it refuses a token that is lower than one that it has seen. The zero value is ready
// for use, by one goroutine at a time.
type Store struct {
	highest int64
	stale   int
}

// Write reports whether the store takes a write with this token.
func (s *Store) Write(token int64) bool {
	if token < s.highest {
		s.stale++
		return false
	}
	s.highest = token
	return true
}

// Highest is the token of the latest write that was taken.
func (s *Store) Highest() int64 { return s.highest }

// Stale is how many writes were refused.
func (s *Store) Stale() int { return s.stale }
