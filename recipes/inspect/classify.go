package inspect

import (
	"cmp"
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
)

// The markers are the text before the number in the names of contenders.
const (
	markerLease = "lease-"
	markerRead  = "__READ__"
	markerWrite = "__WRIT__"
)

// markers lists the markers of all queues that a directory may be, each with its kind.
var markers = []struct{ text, kind string }{ //nolint:gochecknoglobals // a constant list
	{"lock-", KindMutex},
	{"__lock__", KindMutex},
	{"latch-", KindLatch},
	{markerRead, KindRWLock},
	{markerWrite, KindRWLock},
}

// entry is a child of a directory whose name is a contender's.
type entry struct {
	name     string
	marker   string
	kind     string
	sequence string
}

// parseEntry returns false for a child that is not a contender.
func parseEntry(name string) (entry, bool) {
	for _, m := range markers {
		if sequence, ok := queue.SequenceOf(name, m.text); ok {
			return entry{name, m.text, m.kind, sequence}, true
		}
	}
	return entry{}, false
}

// compare orders entries as the recipes do. A reader after a downgrade has the number of its writer, and follows the
// writer.
func (e entry) compare(other entry) int {
	return cmp.Or(
		cmp.Compare(e.sequence, other.sequence),
		-compareBool(e.marker == markerWrite, other.marker == markerWrite),
		cmp.Compare(e.name, other.name),
	)
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	default:
		return -1
	}
}

// parseDir returns the contenders among the children of a directory, in order, and the other
// children.
func parseDir(children []string) (contenders []entry, others []string) {
	for _, name := range children {
		if e, ok := parseEntry(name); ok {
			contenders = append(contenders, e)
		} else {
			others = append(others, name)
		}
	}
	slices.SortFunc(contenders, entry.compare)
	slices.Sort(others)
	return contenders, others
}

// parseMarked returns the children that are contenders with the marker, in order, and whether all
// children are.
func parseMarked(children []string, marker string) (contenders []entry, isAll bool) {
	for _, name := range children {
		if sequence, ok := queue.SequenceOf(name, marker); ok {
			contenders = append(contenders, entry{name: name, marker: marker, kind: KindSemaphore, sequence: sequence})
		}
	}
	slices.SortFunc(contenders, entry.compare)
	return contenders, len(contenders) == len(children)
}

// kindOf returns the kind of a queue in one directory.
func kindOf(contenders []node) string {
	if len(contenders) == 0 {
		return KindUnknown
	}
	kind := contenders[0].kind
	if slices.ContainsFunc(contenders, func(n node) bool { return n.kind != kind }) {
		return KindUnknown
	}
	return kind
}

// countHolders returns the number of holders, which are the first contenders.
func countHolders(kind string, contenders []node) int {
	switch {
	case len(contenders) == 0 || kind == KindUnknown:
		return 0
	case kind != KindRWLock:
		return 1
	}
	first := contenders[0]
	isWaiter := func(n node) bool { return n.marker == markerWrite }
	if first.marker == markerWrite { // readers with the writer's number hold the lock together with the writer
		isWaiter = func(n node) bool { return n.sequence != first.sequence }
	}
	n := slices.IndexFunc(contenders[1:], isWaiter)
	if n < 0 {
		return len(contenders)
	}
	return n + 1
}

// IsContender reports whether name, a znode's name without its directory, is a contender's name in one
// of the recipes.
func IsContender(name string) bool { return queue.IsContender(name) }
