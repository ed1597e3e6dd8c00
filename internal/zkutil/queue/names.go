package queue

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Markers stand before the number in the names of contenders: those of our recipes and of Curator's
// locks (and of zk.Lock), of Curator's LeaderLatch, and of kazoo's locks.
var Markers = []string{"lock-", "latch-", "__lock__"} //nolint:gochecknoglobals // a constant list

// ReadMarker and WriteMarker stand before the number in the names of Curator's read-write lock.
const (
	ReadMarker  = "__READ__"
	WriteMarker = "__WRIT__"
)

// ReadWriteMarkers are the markers of a read-write lock.
var ReadWriteMarkers = []string{ReadMarker, WriteMarker} //nolint:gochecknoglobals // a constant list

// Contender is a child of a queue's directory that takes part in the queue.
type Contender struct {
	Name     string // of the child, without the directory
	sequence string // the number that the server has appended: ten digits, or a minus and digits
	number   int64  // the same as a number, if that is ten digits; else -1
}

// newContender returns the contender with a name, and reports whether it is one.
func newContender(name string, markers []string) (Contender, bool) {
	if number, ok := zkutil.NumberOf(name); ok {
		before := name[:len(name)-zkutil.NumberDigits]
		for _, marker := range markers {
			if strings.HasSuffix(before, marker) { // as nearly always
				return Contender{name, name[len(before):], number}, true
			}
		}
	}
	sequence, ok := sequenceOf(name, markers)
	return Contender{name, sequence, -1}, ok
}

// HasMarker reports whether marker stands before the number in the name.
func (c Contender) HasMarker(marker string) bool {
	return strings.HasSuffix(strings.TrimSuffix(c.Name, c.sequence), marker)
}

// HasNumberOf reports whether two contenders have the same number: see Queue.AcquireUnder.
func (c Contender) HasNumberOf(other Contender) bool { return c.sequence == other.sequence }

// sequenceOf returns the number at the end of a child's name: the text after the last of the
// markers, if that is ten digits, or a minus and digits. Any other child is no contender.
func sequenceOf(name string, markers []string) (string, bool) {
	end := -1
	for _, marker := range markers {
		if i := strings.LastIndex(name, marker); i >= 0 {
			end = max(end, i+len(marker))
		}
	}
	if end < 0 {
		return "", false
	}
	sequence := name[end:]
	digits, isNegative := strings.CutPrefix(sequence, "-")
	if strings.Trim(digits, "0123456789") != "" {
		return "", false
	}
	if isNegative {
		return sequence, len(digits) >= 1 && len(digits) <= 10
	}
	return sequence, len(digits) == 10
}

// isContender reports whether name is that of a contender of any recipe.
func isContender(name string) bool {
	_, isOne := sequenceOf(name, Markers)
	_, isReadWrite := sequenceOf(name, ReadWriteMarkers)
	_, isPermit := sequenceOf(name, []string{PermitMarker})
	return isOne || isReadWrite || isPermit
}

// parseContenders returns the children that take part in the queue, in its order. Numbers are
// in the order of their text, as in Curator. Equal numbers, which only an exhausted counter gives, are
// ordered by the whole name.
func parseContenders(children, markers []string) []Contender {
	queue := make([]Contender, 0, len(children))
	for _, name := range children {
		if c, ok := newContender(name, markers); ok {
			queue = append(queue, c)
		}
	}
	slices.SortFunc(queue, Contender.compare)
	return queue
}

func (c Contender) compare(other Contender) int {
	if c.number != other.number && c.number >= 0 && other.number >= 0 {
		return cmp.Compare(c.number, other.number) // the same as by ten digits
	}
	return cmp.Or(cmp.Compare(c.sequence, other.sequence), cmp.Compare(c.Name, other.Name))
}

// checkSequence reports whether the parent's counter is at its end, where every create gets the
// same number and the order means nothing, and whether it is past half of the way there.
func checkSequence(sequence string) (isExhausted, isRunningOut bool) {
	n, err := strconv.ParseInt(sequence, 10, 64)
	if err != nil || n < 0 || n >= math.MaxInt32 {
		return true, true
	}
	return false, n >= 1<<30
}
