package proto_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// FuzzDecoder reads any bytes as any fields. The decoder must not panic, and must not allocate more than three times
// the frame's length, whatever lengths the frame claims.
func FuzzDecoder(f *testing.F) {
	order := make([]byte, len(fields))
	for i := range order {
		order[i] = byte(i)
	}
	f.Add(frame(fields...), order)
	for i, field := range fields {
		f.Add(frame(field), []byte{byte(i)})
	}
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff}, order)
	f.Fuzz(func(t *testing.T, b, order []byte) {
		d := proto.NewDecoder(b)
		size := 0
		for _, i := range order {
			before := d.Len()
			size += sizeOfField(d, fields[int(i)%len(fields)].name)
			require.LessOrEqual(t, d.Len(), before)
			if d.Err() != nil {
				require.ErrorIs(t, d.Err(), proto.ErrMalformed)
				require.Zero(t, d.Len())
			}
		}
		require.LessOrEqual(t, size, 3*len(b), "more than the frame holds")
	})
}

// sizeOfField reads a field and returns the number of allocated bytes.
func sizeOfField(d *proto.Decoder, name string) int {
	switch name {
	case "string":
		return len(d.String())
	case "text":
		return len(d.Text())
	case "buffer":
		return cap(d.Buffer())
	case "strings":
		size := 0
		for _, s := range d.Strings() {
			size += 4 + len(s)
		}
		return size
	case "ACL":
		size := 0
		for _, entry := range d.ACL() {
			size += 12 + len(entry.Scheme) + len(entry.ID)
		}
		return size
	}
	readAll(d, name)
	return 0
}
