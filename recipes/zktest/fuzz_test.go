package zktest_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// FuzzFrames sends arbitrary bytes in place of a client's requests.
func FuzzFrames(f *testing.F) {
	for _, frames := range oddFrames() {
		f.Add(frames)
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		disturb(t, sent, func(w world, srv *zktest.Server) *raw { return w.session(srv) })
	})
}

// FuzzBodies sends whole frames. The input gives each frame's operation, length and bytes.
func FuzzBodies(f *testing.F) {
	for _, r := range oddRequests() {
		f.Add(append([]byte{byte(r.op), byte(len(r.body))}, r.body...))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		var frames []byte
		for len(input) >= 2 {
			op, n := int8(input[0]), min(int(input[1]), len(input)-2)
			frames = append(frames, proto.NewEncoder().Int32(1).Int32(int32(op)).Raw(input[2:2+n]).Frame()...)
			input = input[2+n:]
		}
		disturb(t, frames, func(w world, srv *zktest.Server) *raw { return w.session(srv) })
	})
}

// FuzzHandshake sends arbitrary bytes in place of the handshake.
func FuzzHandshake(f *testing.F) {
	hail := func(zxid int64, timeout int32, id int64, password []byte) *proto.Encoder {
		return proto.NewEncoder().Int32(0).Int64(zxid).Int32(timeout).Int64(id).Buffer(password)
	}
	empty := make([]byte, proto.PasswordLength)
	f.Add(hail(0, 1000, 0, empty).Bool(false).Frame())
	f.Add(hail(0, 1000, 0, empty).Frame())
	f.Add(hail(1<<40, 1000, 0, empty).Bool(true).Frame())
	f.Add(hail(-1, -1, 4711, nil).Bool(true).Frame())
	f.Add(append(hail(0, 0, 0, empty).Frame(), proto.NewEncoder().Int32(1).Int32(proto.OpCloseSession).Frame()...))
	f.Add([]byte("ruok"))
	f.Fuzz(func(t *testing.T, sent []byte) {
		if bytes.Contains(sent, witnessID) {
			return // even a wrong password ends the connection of the named session
		}
		disturb(t, sent, func(w world, srv *zktest.Server) *raw { return newRaw(w, w.dial(srv)) })
	})
}

// witnessID is the id of every server's first session, as sent over the wire.
var witnessID = binary.BigEndian.AppendUint64(nil, 1<<56+1)

// disturb sends bytes on a connection while a witness checks that other clients are not disturbed, and that the cost
// is limited.
func disturb(t *testing.T, sent []byte, open func(world, *zktest.Server) *raw) {
	t.Helper()
	bubble(t, func(w world) {
		srv := zktest.NewServer(w)
		witness := session(w, w.dial(srv), time.Hour)
		require.Equal(w, witnessID, binary.BigEndian.AppendUint64(nil, uint64(witness.id)))
		c := open(w, srv)

		before := allocated()
		received := make(chan int64)
		go func() { // until the connection ends
			_ = c.conn.SetReadDeadline(time.Time{})
			n, _ := io.Copy(io.Discard, c.conn)
			received <- n
		}()
		_ = c.conn.SetWriteDeadline(time.Now().Add(patience))
		_, _ = c.conn.Write(sent)
		pass(time.Minute) // to let the other session expire, too
		require.NoError(w, c.conn.Close())
		n := <-received
		require.Less(w, allocated()-before, 16<<20+1000*len(sent)+10*int(n))

		witness.send(exists("/", false), ping())
		require.Equal(w, "ok", proto.CodeName(witness.read().code))
		require.EqualValues(w, proto.XidPing, witness.read().xid)
		session(w, w.dial(srv), time.Second)
		srv.ExpireAll()
		srv.Reap()
	})
}

func allocated() int {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.TotalAlloc)
}

// oddRequests are requests with unusual arguments.
func oddRequests() []request {
	acl := func(scheme, id string) []zk.ACL { return []zk.ACL{{Perms: zk.PermAll, Scheme: scheme, ID: id}} }
	setACL := func(list []zk.ACL) request {
		return request{proto.OpSetACL, proto.NewEncoder().String("/").ACL(list).Int32(-1).Body()}
	}
	return []request{
		create("/a", 0), create("/a/", 3), create("", 0), create("a", 2), create("/", 1), create("//", 0), create("/zookeeper/x", -1),
		container("/c"), ttl("/t", time.Second), remove("/zookeeper"), remove("/"), remove(""), remove("x"), set("/", "x"), set("", ""),
		get("", true), exists("\x00", true), exists("nowhere", true), list("/", true), syncing(""), ping(), closing(),
		multi(), multi(part(create("/m", 0)), part(remove("/m")), part(set("/", "x"))),
		multi(part(create("/m", 0)), part(check("/none")), part(set("/", "x"))),
		multi(part(multi())),
		{proto.OpMulti, multi().body[:4]},
		reads(), reads(part(get("/", true)), part(list("/none", false)), part(get("", false))),
		reads(part(get("/", false)), part(remove("/x"))), reads(part(remove("/x")), part(create("/x", 0))),
		{proto.OpMultiRead, reads(part(get("/", false))).body[:16]},
		setACL(nil), setACL(acl("world", "anyone")), setACL(acl("digest", "a:b")), setACL(acl("ip", "127.0.0.1/99")), setACL(acl("auth", "")),
		auth("digest", "a:b"), auth("ip", ""), auth("", ""),
		{proto.OpSetWatches, proto.NewEncoder().Int64(0).Strings([]string{"", "/"}).Strings([]string{"/", "x"}).Strings([]string{"/", ""}).Body()},
		{proto.OpGetACL, proto.NewEncoder().String("/").Body()},
		{proto.OpSetWatches, proto.NewEncoder().Int64(0).Int32(-1).Int32(-1).Int32(-1).Body()},
		{proto.OpSetACL, proto.NewEncoder().String("/").Int32(1).Int32(31).Int32(-1).Int32(-1).Int32(-1).Body()},
		{proto.OpGetData, proto.NewEncoder().Int32(-1).Bool(true).Body()},
		{proto.OpAuth, proto.NewEncoder().Int32(0).Int32(-1).Int32(-1).Body()},
		{proto.OpCheck, nil},
		{0, nil},
		{-1, nil},
		{127, nil},
	}
}

func oddFrames() [][]byte {
	frames := [][]byte{
		nil,
		{0},
		{0, 0, 0, 0},
		{0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0},
		{0xff, 0xff, 0xff, 0xff},
		{0x80, 0, 0, 0},
		{0, 0x0f, 0xff, 0xff, 1},
		{0, 0x10, 0, 0},
		{0x7f, 0xff, 0xff, 0xff},
	}
	for _, r := range oddRequests() {
		frames = append(frames, (&raw{}).encode(r, ping()))
	}
	return frames
}

func TestFramesOfImpossibleLengthEndTheConnection(t *testing.T) {
	for name, sent := range map[string][]byte{
		"negative":  {0xff, 0xff, 0xff, 0xff, 1, 2, 3},
		"lowest":    {0x80, 0, 0, 0},
		"too long":  {0, 0x10, 0, 0},
		"endless":   {0x7f, 0xff, 0xff, 0xff},
		"empty":     {0, 0, 0, 0},
		"no header": {0, 0, 0, 7, 0, 0, 0, 1, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(w world) {
				srv := zktest.NewServer(w)
				witness, c := w.session(srv), w.session(srv)
				c.write(sent)
				c.end()
				c = newRaw(w, w.dial(srv))
				c.write(sent)
				c.end()
				witness.did(create("/a", 0))
				require.Len(w, srv.Sessions(), 2, "the session lives on")
			})
		})
	}
}

func TestLongestFrame(t *testing.T) {
	everywhere(t, func(w world) {
		srv := zktest.NewServer(w)
		c := w.session(srv)
		overhead := len(c.encode(create("/a", 0))) - 4
		longest := request{proto.OpCreate, proto.NewEncoder().String("/a").
			Buffer(make([]byte, proto.MaxFrame-overhead+1)).ACL(all).Int32(0).Body()}
		require.Len(w, c.encode(longest), 4+proto.MaxFrame)
		c.did(longest)
		require.Len(w, c.did(get("/a", false)).body.Buffer(), proto.MaxFrame-overhead+1)
	})
}
