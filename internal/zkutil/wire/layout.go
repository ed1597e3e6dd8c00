package wire

import (
	"encoding/binary"
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// zk.Conn trusts the lengths in a frame. With a wrong length it panics in its own goroutine, or
// allocates gigabytes. Therefore the wire checks a frame while its bytes pass, and holds the last
// bytes back unless the frame has all the fields that zk.Conn is going to read.

// part is a field of a frame.
type part uint8

const (
	partInt    part = iota
	partStat        // eleven numbers
	partText        // a length, then as many bytes
	partBuffer      // the same; a length of −1 stands for none
	partTexts       // a number, then as many texts
	partACL         // a number, then as many entries of an ACL
	partMulti       // the parts of a Multi, each with a header
)

// size is the length of a part, or of the number that it begins with.
func (p part) size() int {
	const stat, multiHeader = 68, 9
	switch p {
	case partStat:
		return stat
	case partMulti:
		return multiHeader
	default:
		return 4
	}
}

// eventParts are the fields of a watch event: type, state, path.
var eventParts = []part{partInt, partInt, partText} //nolint:gochecknoglobals // a constant list

// answerParts are the fields that zk.Conn reads from the answer to a request.
func answerParts(op int32) []part {
	switch op {
	case proto.OpCreate, proto.OpCreateContainer, proto.OpCreateTTL, proto.OpSync:
		return []part{partText}
	case proto.OpExists, proto.OpSetData, proto.OpSetACL:
		return []part{partStat}
	case proto.OpGetData, proto.OpReconfig:
		return []part{partBuffer, partStat}
	case proto.OpGetACL:
		return []part{partACL, partStat}
	case proto.OpGetChildren:
		return []part{partTexts}
	case proto.OpGetChildren2:
		return []part{partTexts, partStat}
	case proto.OpMulti:
		return []part{partMulti}
	default:
		return nil
	}
}

// layout checks one frame, piece by piece.
type layout struct {
	skipLeft int     // the next bytes, whose value does not matter
	bodyLeft int     // the bytes behind those
	fields   []part  // the fields in bodyLeft, the last one first
	start    [9]byte // the first bytes of the next field
	startLen int     // bytes of start that have come
}

// newLayout returns the layout of a frame: a header of any value, and a body that begins with parts.
func newLayout(headerSize, bodySize int, parts []part) layout {
	l := layout{skipLeft: headerSize, bodyLeft: bodySize}
	l.expectFields(parts...)
	return l
}

// expectFields puts fields before those that are still to come.
func (l *layout) expectFields(parts ...part) {
	for _, p := range slices.Backward(parts) {
		l.fields = append(l.fields, p)
	}
}

// accept takes the next bytes of the frame, and reports whether zk.Conn may have them.
func (l *layout) accept(piece []byte) bool {
	for len(l.fields) > 0 {
		n := min(l.skipLeft, len(piece))
		l.skipLeft, piece = l.skipLeft-n, piece[n:]
		if l.skipLeft > 0 {
			return true
		}
		next := l.fields[len(l.fields)-1]
		if next.size()-l.startLen > l.bodyLeft {
			return false
		}
		n = copy(l.start[l.startLen:min(next.size(), len(l.start))], piece)
		l.startLen, l.bodyLeft, piece = l.startLen+n, l.bodyLeft-n, piece[n:]
		if l.startLen < min(next.size(), len(l.start)) {
			return true
		}
		l.startLen, l.fields = 0, l.fields[:len(l.fields)-1]
		if !l.applyStart(next) {
			return false
		}
	}
	return true // zk.Conn does not look at what follows
}

// applyStart acts on the number that a field begins with.
func (l *layout) applyStart(field part) bool {
	number := int(int32(binary.BigEndian.Uint32(l.start[:])))
	switch field {
	case partStat:
		return l.skipBytes(field.size() - len(l.start))
	case partBuffer:
		return l.skipBytes(max(number, 0))
	case partText:
		return l.skipBytes(number)
	case partTexts:
		return l.expectGroups(number, partText)
	case partACL:
		return l.expectGroups(number, partInt, partText, partText)
	case partMulti:
		return l.applyMultiHeader(number)
	default:
		return true
	}
}

// skipBytes expects bytes of any value.
func (l *layout) skipBytes(n int) bool {
	if n < 0 || n > l.bodyLeft {
		return false
	}
	l.skipLeft, l.bodyLeft = n, l.bodyLeft-n
	return true
}

// expectGroups expects a group of fields several times. Each field is four bytes at least, which
// bounds the number of groups by the size of the frame.
func (l *layout) expectGroups(times int, group ...part) bool {
	if times < 0 || times > l.bodyLeft/(4*len(group)) {
		return false
	}
	for range times {
		l.expectFields(group...)
	}
	return true
}

// applyMultiHeader acts on the header of a part of a Multi: kind, end mark, error.
func (l *layout) applyMultiHeader(kind int) bool {
	const end = 4
	if l.start[end] != 0 {
		return true
	}
	l.expectFields(partMulti)
	switch kind {
	case proto.OpError:
		l.expectFields(partInt)
	case proto.OpCreate:
		l.expectFields(partText)
	case proto.OpSetData:
		l.expectFields(partStat)
	case proto.OpCheck, proto.OpDelete:
	default:
		return false
	}
	return true
}
