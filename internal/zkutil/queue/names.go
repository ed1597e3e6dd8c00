package queue

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Markers stand before the number in the names of contenders: of our recipes, Curator's locks, zk.Lock, Curator's LeaderLatch
// and kazoo's locks. See lastMarker for where a marker counts.
var Markers = []string{"lock-", latchMarker, "__lock__"} //nolint:gochecknoglobals // a constant list

const latchMarker = "latch-"

// PermitMarker stands before the number in the names of a semaphore's permits.
const PermitMarker = "lease-"

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
	sequence string // the number that the server appended: ten digits, or a minus and digits
}

// newContender returns the contender with a name, and reports whether the name is that of a contender.
func newContender(name string, markers []string) (Contender, bool) {
	sequence, ok := sequenceOf(name, markers)
	return Contender{name, sequence}, ok
}

// HasMarker reports whether marker stands before the number in the name.
func (c Contender) HasMarker(marker string) bool {
	return strings.HasSuffix(strings.TrimSuffix(c.Name, c.sequence), marker)
}

// HasNumberOf reports whether two contenders have the same number (see Queue.AcquireUnder).
func (c Contender) HasNumberOf(other Contender) bool { return c.sequence == other.sequence }

// sequenceOf returns the number at the end of a child's name. It is the text after the last marker, if that text is ten
// digits, or a minus and digits. A child with any other name is no contender.
func sequenceOf(name string, markers []string) (string, bool) {
	end := -1
	for _, marker := range markers {
		end = max(end, lastMarker(name, marker))
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

// lastMarker returns the index at which the text after the last marker in a name begins, or -1 if the name has no marker. A
// marker counts only at the beginning of the name or of a word: block-0000000012 has none.
func lastMarker(name, marker string) int {
	for rest := name; ; {
		switch at := strings.LastIndex(rest, marker); {
		case at < 0:
			return -1
		case isMarkerAt(name, at):
			return at + len(marker)
		default:
			rest = name[:at+len(marker)-1]
		}
	}
}

// isMarkerAt reports whether a marker that was found in a name counts. A marker such as "__lock__" is set off from the text
// before by its underscores, "lock-" is not.
func isMarkerAt(name string, at int) bool {
	return at == 0 || name[at] == '_' || name[at-1] == '-'
}

// IsContender reports whether a contender of any recipe can have the name.
func IsContender(name string) bool {
	_, isOne := sequenceOf(name, Markers)
	_, isReadWrite := sequenceOf(name, ReadWriteMarkers)
	_, isPermit := sequenceOf(name, []string{PermitMarker})
	return isOne || isReadWrite || isPermit
}

// CheckPath returns an error if a segment of a path has the name of a contender. A lock on the path above such a segment would
// take the directory for a contender, and wait for the directory forever.
func CheckPath(path string) error {
	for dir, name := zkutil.Split(path); name != ""; dir, name = zkutil.Split(dir) {
		if IsContender(name) {
			return fmt.Errorf("%w %q: the segment %q has the name of a contender, and would block a lock or an election on %s",
				zkutil.ErrInvalidPath, path, name, dir)
		}
	}
	return nil
}

// parseContenders returns the children that take part in the queue, in the order of the queue. Numbers are ordered by their
// text, as in Curator. Equal numbers, which only an exhausted counter gives, are ordered by the whole name.
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
	if c.sequence != other.sequence {
		return strings.Compare(c.sequence, other.sequence)
	}
	return strings.Compare(c.Name, other.Name)
}

// checkSequence reports whether the counter of the parent is exhausted, so that every create gets the same number and the order
// means nothing, and whether the counter is past half of its range.
func checkSequence(sequence string) (isExhausted, isRunningOut bool) {
	n, err := strconv.ParseInt(sequence, 10, 64)
	if err != nil || n < 0 || n >= math.MaxInt32 {
		return true, true
	}
	return false, n >= 1<<30
}

// SequenceOf returns the number in the name of a contender whose znodes have marker before the number, and false for any other name.
// SequenceOf serves readers that take no part in a queue.
func SequenceOf(name, marker string) (sequence string, ok bool) {
	return sequenceOf(name, []string{marker})
}
