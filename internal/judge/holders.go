package judge

import "slices"

// Holders judges exclusion on one path, grant after grant. The zero value is ready for use, but not concurrently.
type Holders[T any] struct {
	// Window limits the number of later grants with which a term is compared; 0: no limit.
	Window   int
	standing []standing[T]
	grants   int
}

type standing[T any] struct {
	term T
	nth  int
}

// Grant records a grant, and returns the earlier terms that still stand. After stands has returned false for a term, Grant does
// not ask about the term again, because an end is final.
func (h *Holders[T]) Grant(next T, stands func(before T) bool) (beside []T) {
	h.grants++
	h.standing = slices.DeleteFunc(h.standing, func(s standing[T]) bool {
		return h.Window > 0 && h.grants-s.nth > h.Window || !stands(s.term)
	})
	for _, s := range h.standing {
		beside = append(beside, s.term)
	}
	h.standing = append(h.standing, standing[T]{next, h.grants})
	return beside
}
