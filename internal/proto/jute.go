package proto

import (
	"encoding/binary"
	"errors"
	"strings"

	"github.com/go-zookeeper/zk"
)

// ErrMalformed says that a frame ends before all fields are complete, or contains an impossible
// length.
var ErrMalformed = errors.New("malformed frame")

// Decoder reads the fields of a frame in order. After a missing field
// every field is zero, and Err returns an error: check once, at the end. A Decoder never keeps or
// changes the frame, and never allocates more than three times the frame's length.
type Decoder struct {
	rest []byte
	err  error
}

// NewDecoder returns a Decoder of a frame without the length prefix.
func NewDecoder(frame []byte) *Decoder { return &Decoder{rest: frame} }

// Err returns ErrMalformed if a field was missing.
func (d *Decoder) Err() error { return d.err }

// Len returns the number of unread bytes.
func (d *Decoder) Len() int { return len(d.rest) }

func (d *Decoder) next(n int) []byte {
	if n < 0 || n > len(d.rest) {
		d.err, d.rest = ErrMalformed, nil
		return nil
	}
	head := d.rest[:n]
	d.rest = d.rest[n:]
	return head
}

// Skip passes over n bytes, and reports whether the frame had n bytes left.
func (d *Decoder) Skip(n int) bool {
	d.next(n)
	return d.err == nil
}

// Int32 reads an int.
func (d *Decoder) Int32() int32 {
	if b := d.next(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

// Int64 reads a long.
func (d *Decoder) Int64() int64 {
	if b := d.next(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// Bool reads a boolean.
func (d *Decoder) Bool() bool {
	b := d.next(1)
	return b != nil && b[0] != 0
}

// String reads a ustring. Null counts as malformed.
func (d *Decoder) String() string { return string(d.next(int(d.Int32()))) }

// Null is what Text returns for a null ustring. It is not valid UTF-8, so no other ustring reads as Null.
const Null = "\xff"

// Text reads a ustring as a server in Java does: the replacement character takes the place of invalid UTF-8, and null is Null.
func (d *Decoder) Text() string {
	n := d.Int32()
	if n == -1 {
		return Null
	}
	return strings.ToValidUTF8(string(d.next(int(n))), "\uFFFD")
}

// Buffer reads a buffer into a copy, nil if the buffer is null.
func (d *Decoder) Buffer() []byte {
	n := d.Int32()
	if n == -1 || d.err != nil {
		return nil
	}
	b := d.next(int(n))
	if d.err != nil {
		return nil
	}
	return append(make([]byte, 0, n), b...)
}

// vector reads a vector whose elements take at least size bytes each: nil if the vector is null, and no
// element if its length is another negative number, as in Java.
func vector[T any](d *Decoder, size int, read func() T) []T {
	n := int(d.Int32())
	if n == -1 || d.err != nil {
		return nil
	}
	if n > len(d.rest)/size {
		d.err, d.rest = ErrMalformed, nil
		return nil
	}
	list := make([]T, max(n, 0))
	for i := range list {
		list[i] = read()
	}
	return list
}

// Strings reads a vector of ustrings, each as Text does. It returns nil if the vector is null.
func (d *Decoder) Strings() []string { return vector(d, 4, d.Text) }

// ACL reads a vector of ACL entries, their ustrings as Text does. It returns nil if the vector is null.
func (d *Decoder) ACL() []zk.ACL {
	return vector(d, 12, func() zk.ACL { return zk.ACL{Perms: d.Int32(), Scheme: d.Text(), ID: d.Text()} })
}

// Stat reads a znode's stat.
func (d *Decoder) Stat() zk.Stat {
	return zk.Stat{
		Czxid: d.Int64(), Mzxid: d.Int64(), Ctime: d.Int64(), Mtime: d.Int64(),
		Version: d.Int32(), Cversion: d.Int32(), Aversion: d.Int32(), EphemeralOwner: d.Int64(),
		DataLength: d.Int32(), NumChildren: d.Int32(), Pzxid: d.Int64(),
	}
}

// Encoder writes the fields of a frame in order.
type Encoder struct{ b []byte }

// NewEncoder begins a frame with room for the length prefix.
func NewEncoder() *Encoder { return &Encoder{b: make([]byte, 4, 128)} }

// Extend continues a buffer of several frames. The caller fills in the length prefix of each frame.
func Extend(b []byte) Encoder { return Encoder{b} }

// Bytes returns the whole buffer.
func (e *Encoder) Bytes() []byte { return e.b }

// Frame returns the frame with the length prefix. The encoder must not be used
// afterwards.
func (e *Encoder) Frame() []byte {
	binary.BigEndian.PutUint32(e.b, uint32(len(e.b)-4))
	return e.b
}

// Body returns the frame without the length prefix.
func (e *Encoder) Body() []byte { return e.b[4:] }

// Int32 writes an int.
func (e *Encoder) Int32(v int32) *Encoder {
	e.b = binary.BigEndian.AppendUint32(e.b, uint32(v))
	return e
}

// Int64 writes a long.
func (e *Encoder) Int64(v int64) *Encoder {
	e.b = binary.BigEndian.AppendUint64(e.b, uint64(v))
	return e
}

// Bool writes a boolean.
func (e *Encoder) Bool(v bool) *Encoder {
	var b byte
	if v {
		b = 1
	}
	e.b = append(e.b, b)
	return e
}

// String writes a ustring.
func (e *Encoder) String(v string) *Encoder {
	e.Int32(int32(len(v)))
	e.b = append(e.b, v...)
	return e
}

// Buffer writes a buffer; nil is written as null.
func (e *Encoder) Buffer(v []byte) *Encoder {
	if v == nil {
		return e.Int32(-1)
	}
	e.Int32(int32(len(v)))
	e.b = append(e.b, v...)
	return e
}

// Raw writes bytes unchanged.
func (e *Encoder) Raw(v []byte) *Encoder {
	e.b = append(e.b, v...)
	return e
}

// Strings writes a vector of strings.
func (e *Encoder) Strings(list []string) *Encoder {
	e.Int32(int32(len(list)))
	for _, s := range list {
		e.String(s)
	}
	return e
}

// ACL writes a vector of ACL entries.
func (e *Encoder) ACL(list []zk.ACL) *Encoder {
	e.Int32(int32(len(list)))
	for _, entry := range list {
		e.Int32(entry.Perms).String(entry.Scheme).String(entry.ID)
	}
	return e
}

// Stat writes a znode's stat.
func (e *Encoder) Stat(s zk.Stat) *Encoder {
	return e.Int64(s.Czxid).Int64(s.Mzxid).Int64(s.Ctime).Int64(s.Mtime).
		Int32(s.Version).Int32(s.Cversion).Int32(s.Aversion).Int64(s.EphemeralOwner).
		Int32(s.DataLength).Int32(s.NumChildren).Int64(s.Pzxid)
}
