package proto

import (
	"encoding/binary"
	"slices"
)

// zk.Conn trusts the lengths in a frame. A wrong length makes zk.Conn panic in a goroutine of its own, or
// allocate gigabytes. A Layout checks a frame while the bytes pass, so that the caller can hold back the last
// bytes of a frame that lacks any field which zk.Conn is going to read.

// HeaderSize is the size of the header of an answer or event: length, xid, zxid, code.
const HeaderSize = 4 + 16

// part is a field of a frame.
type part uint8

const (
	partInt    part = iota
	partStat        // eleven numbers
	partText        // a length, then as many bytes
	partBuffer      // as partText; a length of −1 stands for null
	partTexts       // a number, then as many texts
	partACL         // a number, then as many entries of an ACL
	partMulti       // the parts of a Multi, each with a header
)

// size returns the length of a part, or of the number at the beginning of the part.
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
	case OpCreate, OpCreateContainer, OpCreateTTL, OpSync:
		return []part{partText}
	case OpExists, OpSetData, OpSetACL:
		return []part{partStat}
	case OpGetData, OpReconfig:
		return []part{partBuffer, partStat}
	case OpGetACL:
		return []part{partACL, partStat}
	case OpGetChildren:
		return []part{partTexts}
	case OpGetChildren2:
		return []part{partTexts, partStat}
	case OpMulti:
		return []part{partMulti}
	default:
		return nil
	}
}

// Layout checks a frame, piece by piece.
type Layout struct {
	skipLeft int     // the next bytes, whose value does not matter
	bodyLeft int     // the bytes behind skipLeft
	fields   []part  // the fields in bodyLeft, the last one first
	start    [9]byte // the first bytes of the next field
	startLen int     // how many bytes of start have come
}

// EventLayout returns the layout of a watch event. size is the length prefix of the frame.
func EventLayout(size int) Layout { return newLayout(HeaderSize, size-(HeaderSize-4), eventParts) }

// AnswerLayout returns the layout of an answer without an error. size is the length prefix of the frame.
func AnswerLayout(op int32, size int) Layout {
	return newLayout(HeaderSize, size-(HeaderSize-4), answerParts(op))
}

// newLayout returns the layout of a frame: a header of any value, and a body with parts at the beginning.
func newLayout(headerSize, bodySize int, parts []part) Layout {
	l := Layout{skipLeft: headerSize, bodyLeft: bodySize}
	l.expectFields(parts...)
	return l
}

// expectFields puts parts before the fields still to come.
func (l *Layout) expectFields(parts ...part) {
	for _, p := range slices.Backward(parts) {
		l.fields = append(l.fields, p)
	}
}

// Accept takes the next bytes of the frame, and reports whether zk.Conn may read these bytes.
func (l *Layout) Accept(piece []byte) bool {
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
	return true // zk.Conn ignores the rest
}

// applyStart acts on the number at the beginning of a field.
func (l *Layout) applyStart(field part) bool {
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
func (l *Layout) skipBytes(n int) bool {
	if n < 0 || n > l.bodyLeft {
		return false
	}
	l.skipLeft, l.bodyLeft = n, l.bodyLeft-n
	return true
}

// expectGroups expects a group of fields several times. Each field is four bytes at least, which
// bounds the number of groups by the size of the frame.
func (l *Layout) expectGroups(times int, group ...part) bool {
	if times < 0 || times > l.bodyLeft/(4*len(group)) {
		return false
	}
	for range times {
		l.expectFields(group...)
	}
	return true
}

// applyMultiHeader acts on the header of a part of a Multi: kind, end mark, error.
func (l *Layout) applyMultiHeader(kind int) bool {
	const end = 4
	if l.start[end] != 0 {
		return true
	}
	l.expectFields(partMulti)
	switch kind {
	case OpError:
		l.expectFields(partInt)
	case OpCreate:
		l.expectFields(partText)
	case OpSetData:
		l.expectFields(partStat)
	case OpCheck, OpDelete:
	default:
		return false
	}
	return true
}
