package queue

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// A steered contender has its priority in the name of its znode, between the uuid and the marker:
// _c_<uuid>-p5-latch-0000000007. So one listing shows all priorities, and who can be asked to yield. The order of the queue is
// that of the numbers all the same, for all programs.

// steeredName matches the names of steered contenders.
var steeredName = regexp.MustCompile(`^` + zkutil.Protection + `[0-9a-f-]{36}-p(-?[0-9]+)-[a-z]+-[0-9]{10}$`)

// SteeredPrefix returns the prefix of a contender with a priority.
func SteeredPrefix(priority int, prefix string) string {
	return "p" + strconv.Itoa(priority) + "-" + prefix
}

// PriorityOf returns the priority in the name of a contender. A contender that can't be steered has priority 0.
func PriorityOf(name string) (priority int, isSteered bool) {
	match := steeredName.FindStringSubmatch(name)
	if match == nil {
		return 0, false
	}
	priority, err := strconv.Atoi(match[1])
	return priority, err == nil
}

// Priority is PriorityOf for a contender.
func (c Contender) Priority() (priority int, isSteered bool) { return PriorityOf(c.Name) }

// YieldKind says why a contender is asked to yield, or that it is asked to stay. The kind is part of the request's text.
type YieldKind string

// The kinds of requests. Stay is the opposite of the others: it asks the contender not to yield to contenders up to Target.
const (
	YieldToPriority YieldKind = "priority" // the other contender's priority is higher
	YieldToTransfer YieldKind = "transfer" // a client asked for the other contender
	Stay            YieldKind = "stay"     // a client asked for this contender
)

// Yield is a request to a steered contender: to let another contender go ahead, by leaving its position and
// joining again at the tail. The request is written into the contender's znode, in place of the contender's id.
type Yield struct {
	Kind   YieldKind
	Target string // name of the other contender's znode
	ID     []byte // of the asked contender, or a revocation, as it was in the znode
}

const yieldMark = "__YIELD__ "

// Encode returns the content of the znode.
func (y Yield) Encode() []byte {
	return append([]byte(yieldMark+string(y.Kind)+" "+y.Target+"\n"), y.ID...)
}

// ParseYield returns the request in the content of a znode, if there is one.
func ParseYield(data []byte) (y Yield, ok bool) {
	if !bytes.HasPrefix(data, []byte(yieldMark)) {
		return Yield{}, false
	}
	line, id, hasID := bytes.Cut(data[len(yieldMark):], []byte("\n"))
	text, target, hasTarget := strings.Cut(string(line), " ")
	kind := YieldKind(text)
	if !hasID || !hasTarget || kind != YieldToPriority && kind != YieldToTransfer && kind != Stay {
		return Yield{}, false
	}
	return Yield{Kind: kind, Target: target, ID: id}, true
}

// idOf returns the id of a contender, given the content of its znode.
func idOf(data []byte) []byte {
	if y, ok := ParseYield(data); ok {
		return y.ID
	}
	return data
}
