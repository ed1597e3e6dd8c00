package proto_test

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// field is one field of a frame, with functions to write, read and compare it.
type field struct {
	name  string
	write func(*proto.Encoder)
	check func(*testing.T, *proto.Decoder)
}

// value is a field with a value that must be read as written.
func value[T any](name string, v T, write func(*proto.Encoder, T) *proto.Encoder, read func(*proto.Decoder) T) field {
	return field{
		name:  name,
		write: func(e *proto.Encoder) { write(e, v) },
		check: func(t *testing.T, d *proto.Decoder) {
			t.Helper()
			require.Equal(t, v, read(d), name)
		},
	}
}

var stat = zk.Stat{
	Czxid: 1, Mzxid: 2, Ctime: 3, Mtime: math.MinInt64, Version: 5, Cversion: -6, Aversion: 7,
	EphemeralOwner: math.MaxInt64, DataLength: 9, NumChildren: 10, Pzxid: 11,
}

var fields = []field{
	value("int", int32(-7), (*proto.Encoder).Int32, (*proto.Decoder).Int32),
	value("greatest int", int32(math.MaxInt32), (*proto.Encoder).Int32, (*proto.Decoder).Int32),
	value("long", int64(math.MinInt64), (*proto.Encoder).Int64, (*proto.Decoder).Int64),
	value("true", true, (*proto.Encoder).Bool, (*proto.Decoder).Bool),
	value("false", false, (*proto.Encoder).Bool, (*proto.Decoder).Bool),
	value("string", "/a\x00ü", (*proto.Encoder).String, (*proto.Decoder).String),
	value("text", "/a\x00ü", (*proto.Encoder).String, (*proto.Decoder).Text),
	value("empty string", "", (*proto.Encoder).String, (*proto.Decoder).String),
	value("buffer", []byte{1, 0, 255}, (*proto.Encoder).Buffer, (*proto.Decoder).Buffer),
	value("empty buffer", []byte{}, (*proto.Encoder).Buffer, (*proto.Decoder).Buffer),
	value("null buffer", []byte(nil), (*proto.Encoder).Buffer, (*proto.Decoder).Buffer),
	value("strings", []string{"a", "", "c"}, (*proto.Encoder).Strings, (*proto.Decoder).Strings),
	value("no strings", []string{}, (*proto.Encoder).Strings, (*proto.Decoder).Strings),
	value("ACL", []zk.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}, {Perms: -1}}, (*proto.Encoder).ACL, (*proto.Decoder).ACL),
	value("stat", stat, (*proto.Encoder).Stat, (*proto.Decoder).Stat),
}

// frame is a frame without its length.
func frame(fields ...field) []byte {
	e := proto.NewEncoder()
	for _, f := range fields {
		f.write(e)
	}
	return e.Frame()[4:]
}

func TestFieldsRoundTrip(t *testing.T) {
	for _, f := range fields {
		t.Run(f.name, func(t *testing.T) {
			d := proto.NewDecoder(frame(f))
			f.check(t, d)
			require.NoError(t, d.Err())
			require.Zero(t, d.Len())
		})
	}
	d := proto.NewDecoder(frame(fields...))
	for _, f := range fields {
		f.check(t, d)
	}
	require.NoError(t, d.Err())
	require.Zero(t, d.Len())
}

func TestFrameBeginsWithItsLength(t *testing.T) {
	whole := proto.NewEncoder().Int32(1).Raw([]byte("rest")).Frame()
	require.Equal(t, []byte{0, 0, 0, 8, 0, 0, 0, 1, 'r', 'e', 's', 't'}, whole)
	require.Equal(t, []byte{0, 0, 0, 0}, proto.NewEncoder().Frame())
}

func TestEncodingMatchesZooKeeper(t *testing.T) {
	require.Equal(t, []byte{0xff, 0xff, 0xff, 0xff}, frame(field{write: func(e *proto.Encoder) { e.Buffer(nil) }}))
	require.Equal(t, []byte{0, 0, 0, 0}, frame(field{write: func(e *proto.Encoder) { e.Buffer([]byte{}) }}))
	require.Equal(t, []byte{0, 0, 0, 1, 'a'}, frame(field{write: func(e *proto.Encoder) { e.String("a") }}))
	require.Len(t, frame(field{write: func(e *proto.Encoder) { e.Stat(stat) }}), 68)
}

// A frame that ends early, at any place, is malformed, and reads as zeros from there.
func TestTruncatedFrameIsMalformed(t *testing.T) {
	for _, f := range fields {
		whole := frame(f)
		for n := range whole {
			d := proto.NewDecoder(whole[:n])
			readAll(d, f.name)
			require.ErrorIs(t, d.Err(), proto.ErrMalformed, "%s after %d of %d bytes", f.name, n, len(whole))
			require.Zero(t, d.Int64())
			require.Empty(t, d.Strings())
			require.Nil(t, d.Buffer())
			require.Zero(t, d.Len())
		}
	}
}

// readAll reads one field by its name.
func readAll(d *proto.Decoder, name string) {
	switch {
	case strings.HasSuffix(name, "int"):
		d.Int32()
	case name == "long":
		d.Int64()
	case name == "true" || name == "false":
		d.Bool()
	case strings.HasSuffix(name, "string"):
		_ = d.String()
	case name == "text":
		d.Text()
	case strings.HasSuffix(name, "buffer"):
		d.Buffer()
	case strings.HasSuffix(name, "strings"):
		d.Strings()
	case name == "ACL":
		d.ACL()
	case name == "stat":
		d.Stat()
	}
}

func TestImpossibleLengthsAreMalformed(t *testing.T) {
	for _, length := range []int32{2, 1 << 20, math.MaxInt32, math.MinInt32, -2} {
		b := append(binary.BigEndian.AppendUint32(nil, uint32(length)), 0)
		for _, name := range []string{"string", "text", "buffer", "strings", "ACL"} {
			d := proto.NewDecoder(b)
			readAll(d, name)
			if length < 0 && (name == "strings" || name == "ACL") { // as in Java
				require.NoError(t, d.Err(), "%s of %d", name, length)
				require.Equal(t, 1, d.Len())
			} else {
				require.ErrorIs(t, d.Err(), proto.ErrMalformed, "%s of %d", name, length)
			}
		}
	}
}

func TestNull(t *testing.T) {
	null := []byte{0xff, 0xff, 0xff, 0xff}
	d := proto.NewDecoder(null)
	_ = d.String()
	require.ErrorIs(t, d.Err(), proto.ErrMalformed, "a null string")
	d = proto.NewDecoder(bytes.Repeat(null, 3))
	require.Equal(t, proto.Null, d.Text())
	require.Nil(t, d.Strings())
	require.Nil(t, d.ACL())
	require.NoError(t, d.Err())
	require.Zero(t, d.Len())

	d = proto.NewDecoder(proto.NewEncoder().Strings([]string{proto.Null, "a\xffb"}).Int32(1).Int32(31).Int32(-1).Int32(-1).Body())
	require.Equal(t, []string{"\uFFFD", "a\uFFFDb"}, d.Strings(), "no text reads as Null")
	require.Equal(t, []zk.ACL{{Perms: 31, Scheme: proto.Null, ID: proto.Null}}, d.ACL())
	require.NoError(t, d.Err())
}

func TestDecoderDoesNotRetainTheFrame(t *testing.T) {
	whole := frame(fields...)
	d := proto.NewDecoder(whole)
	original := bytes.Clone(whole)
	for _, f := range fields {
		f.check(t, d)
	}
	require.Equal(t, original, whole)

	b := frame(field{write: func(e *proto.Encoder) { e.Buffer([]byte("before")) }})
	read := proto.NewDecoder(b).Buffer()
	copy(b[4:], "after ")
	require.Equal(t, "before", string(read))
}
