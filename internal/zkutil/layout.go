package zkutil

import (
	"encoding/binary"
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// zk.Conn believes the lengths in a frame: it panics in its own goroutine, or asks for
// gigabytes, where one is wrong. So a frame is checked while its bytes pass, and the last of
// them do not pass unless all that zk.Conn is going to read is there.

// part is a field of a frame.
type part uint8

const (
	partInt    part = iota
	partStat        // eleven numbers
	partText        // a length and as many bytes
	partBuffer      // the same; a length of −1 stands for none
	partTexts       // a number, and as many texts
	partACL         // a number, and as many entries of an ACL
	partMulti       // the parts of a Multi, each with a header
)

// size is how long a part is, or the number that it begins with.
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

// layout checks a frame, of which it is shown one piece after the other.
type layout struct {
	skip int    // bytes whose value does not matter
	left int    // bytes behind those
	todo []part // the fields there, the last one first
	word [9]byte
	have int // bytes of word that have come
}

// layoutOf is the layout of a frame with so many bytes behind a start of any value.
func layoutOf(start, left int, parts []part) layout {
	l := layout{skip: start, left: left}
	l.expect(parts...)
	return l
}

// expect puts fields before those that are still to come.
func (l *layout) expect(parts ...part) {
	for _, p := range slices.Backward(parts) {
		l.todo = append(l.todo, p)
	}
}

// fits takes the next bytes of the frame, and reports whether zk.Conn may have them.
func (l *layout) fits(piece []byte) bool {
	for len(l.todo) > 0 {
		n := min(l.skip, len(piece))
		l.skip, piece = l.skip-n, piece[n:]
		if l.skip > 0 {
			return true
		}
		next := l.todo[len(l.todo)-1]
		if next.size()-l.have > l.left {
			return false
		}
		n = copy(l.word[l.have:min(next.size(), len(l.word))], piece)
		l.have, l.left, piece = l.have+n, l.left-n, piece[n:]
		if l.have < min(next.size(), len(l.word)) {
			return true
		}
		l.have, l.todo = 0, l.todo[:len(l.todo)-1]
		if !l.read(next) {
			return false
		}
	}
	return true // zk.Conn does not look at what follows
}

// read acts on the number that a field begins with, which is in word.
func (l *layout) read(field part) bool {
	number := int(int32(binary.BigEndian.Uint32(l.word[:])))
	switch field {
	case partStat:
		return l.jump(field.size() - len(l.word))
	case partBuffer:
		return l.jump(max(number, 0))
	case partText:
		return l.jump(number)
	case partTexts:
		return l.repeat(number, partText)
	case partACL:
		return l.repeat(number, partInt, partText, partText)
	case partMulti:
		return l.readMulti(number)
	default:
		return true
	}
}

// jump passes bytes of any value over.
func (l *layout) jump(n int) bool {
	if n < 0 || n > l.left {
		return false
	}
	l.skip, l.left = n, l.left-n
	return true
}

// repeat expects a group of fields, each of which is four bytes at least, so many times.
func (l *layout) repeat(times int, group ...part) bool {
	if times < 0 || times > l.left/(4*len(group)) {
		return false
	}
	for range times {
		l.expect(group...)
	}
	return true
}

// readMulti acts on the header of a Multi's part: kind, end mark, error.
func (l *layout) readMulti(kind int) bool {
	const end = 4
	if l.word[end] != 0 {
		return true
	}
	l.expect(partMulti)
	switch kind {
	case proto.OpError:
		l.expect(partInt)
	case proto.OpCreate:
		l.expect(partText)
	case proto.OpSetData:
		l.expect(partStat)
	case proto.OpCheck, proto.OpDelete:
	default:
		return false
	}
	return true
}
