package faultproxy

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// request returns the body of a request with one string after its header.
func request(xid, code int32, path string) []byte {
	return proto.NewEncoder().Int32(xid).Int32(code).String(path).Body()
}

func TestWaysToCreateAreDistinguished(t *testing.T) {
	for code, name := range map[int32]string{1: "create", 15: "create2", 19: "createContainer", 21: "createTTL"} {
		r := parseRequest(request(7, code, "/a"))
		require.Equal(t, Request{Xid: 7, Op: name, Path: "/a"}, r)
		require.True(t, Creates()(r))
		require.True(t, Op(name)(r))
		require.True(t, OpPath(name, "a")(r))
		require.False(t, OpPath(name, "b")(r))
		for _, other := range []string{"create", "create2", "createContainer", "createTTL"} {
			require.Equal(t, other == name, Op(other)(r))
		}
	}
}

func TestPingAndCloseHaveNoPath(t *testing.T) {
	require.Equal(t, Request{Xid: -2, Op: "ping"}, parseRequest(request(-2, 11, "/a")))
	require.Equal(t, Request{Xid: 1, Op: "close"}, parseRequest(request(1, -11, "/a")))
	require.False(t, Any()(Request{Op: "ping"}))
}

func TestUnknownOperationIsNamedByItsNumber(t *testing.T) {
	require.Equal(t, "op 999", parseRequest(request(1, 999, "")).Op)
}

func FuzzParseRequest(f *testing.F) {
	f.Add(request(1, 1, "/a"))
	f.Add(request(1, 14, "/a"))
	f.Add([]byte{0, 0, 0, 1, 0, 0, 0, 14, 0, 0, 0, 1, 0, 255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 0, 127, 255, 255, 255})
	f.Fuzz(func(_ *testing.T, body []byte) {
		_ = parseRequest(body).String()
		_ = sessionOf(body)
		_, _ = readFrame(bytes.NewReader(body))
	})
}
