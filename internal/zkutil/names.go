package zkutil

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Contender is a child of a queue's directory that takes part in the queue.
type Contender struct {
	Name     string // the child's name
	sequence string // what the server appended: ten digits, or a minus and digits
}

// protection is what Curator puts before the uuid of a protected node.
const protection = "_c_"

// newUUID returns a random (version 4) UUID in its canonical form: 36 lowercase
// characters, the only form that Curator recognises as protection.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// protectionOf returns what comes before the prefix in the name of a protected znode: the
// protection, the uuid and a dash; "" for any other name.
func protectionOf(name string) string {
	const length = len(protection) + 36 + 1
	if len(name) < length || !strings.HasPrefix(name, protection) {
		return ""
	}
	return name[:length]
}

// sequenceOf returns the sequence number at the end of a child's name: the text
// after the last of the markers, if it is ten digits or a minus and digits. Any
// other child is no contender.
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
	digits, negative := strings.CutPrefix(sequence, "-")
	if strings.Trim(digits, "0123456789") != "" {
		return "", false
	}
	if negative {
		return sequence, len(digits) >= 1 && len(digits) <= 10
	}
	return sequence, len(digits) == 10
}

// contenders returns the children that take part in the queue, in its order. As
// in Curator the sequence numbers are compared as text; equal ones, which only a
// saturated counter gives, by the whole name.
func contenders(children, markers []string) []Contender {
	queue := make([]Contender, 0, len(children))
	for _, name := range children {
		if sequence, ok := sequenceOf(name, markers); ok {
			queue = append(queue, Contender{Name: name, sequence: sequence})
		}
	}
	slices.SortFunc(queue, Contender.compare)
	return queue
}

func (c Contender) compare(other Contender) int {
	return cmp.Or(cmp.Compare(c.sequence, other.sequence), cmp.Compare(c.Name, other.Name))
}

// wornOut says how far the parent's counter has come. At its end every create
// gets the same number and the order means nothing; warn from half way.
func wornOut(sequence string) (exhausted, warn bool) {
	n, err := strconv.ParseInt(sequence, 10, 64)
	if err != nil || n < 0 || n >= math.MaxInt32 {
		return true, true
	}
	return false, n >= 1<<30
}
