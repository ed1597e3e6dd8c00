package load

import (
	"cmp"
	"slices"
	"time"
)

// Wall is the time from the first call to the end of the last release.
func Wall(spans []Span) time.Duration {
	first := slices.MinFunc(spans, func(a, b Span) int { return cmp.Compare(a.Called, b.Called) })
	last := slices.MaxFunc(spans, func(a, b Span) int { return cmp.Compare(a.Released, b.Released) })
	return time.Duration(last.Released - first.Called)
}

// Overlaps counts the acquisitions of one lock during which another one was held, and those of a basket during which another basket
// with a common item was held. Each is a breach of mutual exclusion.
func Overlaps(spans []Span) int {
	overlaps, latest := 0, map[int]int64{} // by item
	for _, s := range byAcquisition(spans) {
		items := s.Items
		if items == nil {
			items = []int{0}
		}
		if slices.ContainsFunc(items, func(item int) bool { return s.Acquired < latest[item] }) {
			overlaps++
		}
		for _, item := range items {
			latest[item] = max(latest[item], s.Releasing)
		}
	}
	return overlaps
}

// Waits are the times from the calls to the acquisitions.
func Waits(spans []Span) []time.Duration {
	waits := make([]time.Duration, len(spans))
	for i, s := range spans {
		waits[i] = time.Duration(s.Acquired - s.Called)
	}
	return waits
}

// Handoffs are the times from a holder's call of release to the acquisition by the next, of those who waited by then.
func Handoffs(spans []Span) []time.Duration {
	ordered := byAcquisition(spans)
	var handoffs []time.Duration
	for i, s := range ordered[1:] {
		if s.Called < ordered[i].Releasing {
			handoffs = append(handoffs, time.Duration(s.Acquired-ordered[i].Releasing))
		}
	}
	return handoffs
}

// Pairs are the times that lock and unlock took, without the time in between.
func Pairs(spans []Span) []time.Duration {
	pairs := make([]time.Duration, len(spans))
	for i, s := range spans {
		pairs[i] = time.Duration(s.Released - s.Releasing + s.Acquired - s.Called)
	}
	return pairs
}

// Quantile is the value below which a share of the values lies; 0 for none.
func Quantile(values []time.Duration, share float64) time.Duration {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(share*float64(len(sorted))))]
}

func byAcquisition(spans []Span) []Span {
	return slices.SortedFunc(slices.Values(spans), func(a, b Span) int { return cmp.Compare(a.Acquired, b.Acquired) })
}
