package meter

import "encoding/binary"

const (
	lengthSize = 4
	// keep is how much of a frame is examined: the headers.
	keep = 24
)

// cutter finds the frames in a stream that arrives in pieces. It keeps the first bytes of a frame alone, because answers can be
// long.
type cutter struct {
	begun  bool // the first frame, the handshake, is over
	length []byte
	head   []byte
	left   int // bytes of the frame still to arrive
	size   int
}

// cut calls fn at the end of each frame with its first bytes and its size, length included.
func (c *cutter) cut(b []byte, fn func(head []byte, size int64, first bool)) {
	for len(b) > 0 {
		if c.left == 0 {
			n := min(lengthSize-len(c.length), len(b))
			c.length, b = append(c.length, b[:n]...), b[n:]
			if len(c.length) < lengthSize {
				return
			}
			c.size = int(binary.BigEndian.Uint32(c.length))
			c.left, c.length, c.head = c.size, c.length[:0], c.head[:0]
			continue
		}
		n := min(c.left, len(b))
		if room := keep - len(c.head); room > 0 {
			c.head = append(c.head, b[:min(n, room)]...)
		}
		c.left, b = c.left-n, b[n:]
		if c.left == 0 {
			fn(c.head, int64(c.size+lengthSize), !c.begun)
			c.begun = true
		}
	}
}
