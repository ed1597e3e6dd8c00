package wire

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// quiet drops what zk.Conn logs.
type quiet struct{}

func (quiet) Printf(string, ...any) {}

// playServer returns a zk.Conn, and the server's end of its connection, whose handshake was answered.
func playServer(t *testing.T) (conn *zk.Conn, server net.Conn) {
	t.Helper()
	client, server := net.Pipe()
	dials := 0
	conn, _, err := zk.Connect([]string{"127.0.0.1:1"}, 4*time.Second, zk.WithLogger(quiet{}), zk.WithLogInfo(false),
		zk.WithDialer(func(string, string, time.Duration) (net.Conn, error) {
			if dials++; dials > 1 {
				return nil, net.ErrClosed
			}
			return client, nil
		}))
	require.NoError(t, err)
	_, err = readWhole(server)
	require.NoError(t, err)
	_, err = server.Write(handshakeFrame(7))
	require.NoError(t, err)
	synctest.Wait()
	return conn, server
}

// operation is a request of the engine's own, and the same of zk.Conn's.
type operation struct {
	request Request
	ask     func(c *zk.Conn) (Answer, error)
	body    *proto.Encoder // of an answer without an error
}

var (
	testACL  = []zk.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}, {Perms: 1, Scheme: "digest", ID: "a:b"}}
	testStat = zk.Stat{Czxid: 1, Mzxid: 2, Ctime: 3, Mtime: 4, Version: 5, Cversion: 6, Aversion: 7, EphemeralOwner: 8, DataLength: 9, NumChildren: 10, Pzxid: 11}
)

func body() *proto.Encoder { return proto.NewEncoder() }

// with returns an answer with a stat.
func with(a Answer, stat *zk.Stat) Answer {
	if stat != nil {
		a.Stat = *stat
	}
	return a
}

// operations are all that zk.Conn has too.
func operations() map[string]operation {
	read := func(op int32, isWatch bool) Request { return Request{Op: op, Path: "/a/b", IsWatch: isWatch} }
	created := func(path string, err error) (Answer, error) { return Answer{Path: path}, err }
	checks := func(c *zk.Conn) (Answer, error) {
		parts, err := c.Multi(&zk.CheckVersionRequest{Path: "/a", Version: -1}, &zk.CheckVersionRequest{Path: "/b", Version: -1})
		return Answer{Refused: slices.IndexFunc(parts, func(p zk.MultiResponse) bool { return p.Error != nil })}, err
	}
	multi := Request{Op: proto.OpMulti, Checks: []string{"/a", "/b"}}
	ok := func(e *proto.Encoder) *proto.Encoder { return e.Int32(proto.OpCheck).Bool(false).Int32(0) }
	refused := func(e *proto.Encoder, code int32) *proto.Encoder {
		return e.Int32(proto.OpError).Bool(false).Int32(code).Int32(code)
	}
	end := func(e *proto.Encoder) *proto.Encoder { return e.Int32(proto.OpError).Bool(true).Int32(-1) }
	exists := func(isThere bool, stat *zk.Stat, err error) (Answer, error) {
		if err == nil && !isThere {
			err = zk.ErrNoNode
		}
		return with(Answer{}, stat), err
	}
	get := func(data []byte, stat *zk.Stat, err error) (Answer, error) {
		return with(Answer{Data: data}, stat), err
	}
	list := func(children []string, stat *zk.Stat, err error) (Answer, error) {
		return with(Answer{Children: children}, stat), err
	}
	return map[string]operation{
		"create": {
			Request{Op: proto.OpCreate, Path: "/a/b-", Data: []byte("x"), ACL: testACL, Flags: zk.FlagEphemeralSequential},
			func(c *zk.Conn) (Answer, error) {
				return created(c.Create("/a/b-", []byte("x"), zk.FlagEphemeralSequential, testACL))
			}, body().String("/a/b-7"),
		},
		"create without data": {
			Request{Op: proto.OpCreate, Path: "/a", ACL: testACL},
			func(c *zk.Conn) (Answer, error) { return created(c.Create("/a", nil, 0, testACL)) }, body().String("/a"),
		},
		"create with empty data": {
			Request{Op: proto.OpCreate, Path: "/a", Data: []byte{}},
			func(c *zk.Conn) (Answer, error) { return created(c.Create("/a", []byte{}, 0, nil)) }, body().String("/a"),
		},
		"container": {
			Request{Op: proto.OpCreateContainer, Path: "/a", Data: []byte{}, ACL: testACL, Flags: zk.FlagContainer},
			func(c *zk.Conn) (Answer, error) {
				return created(c.CreateContainer("/a", []byte{}, zk.FlagContainer, testACL))
			}, body().String("/a").Stat(zk.Stat{}),
		},
		"delete": {Request{Op: proto.OpDelete, Path: "/a", Version: 3}, func(c *zk.Conn) (Answer, error) { return Answer{}, c.Delete("/a", 3) }, body()},
		"set": {Request{Op: proto.OpSetData, Path: "/a", Data: []byte("x"), Version: -1}, func(c *zk.Conn) (Answer, error) {
			stat, err := c.Set("/a", []byte("x"), -1)
			return with(Answer{}, stat), err
		}, body().Stat(testStat)},
		"get":          {read(proto.OpGetData, false), func(c *zk.Conn) (Answer, error) { return get(c.Get("/a/b")) }, body().Buffer([]byte("data")).Stat(testStat)},
		"get no data":  {read(proto.OpGetData, false), func(c *zk.Conn) (Answer, error) { return get(c.Get("/a/b")) }, body().Buffer(nil).Stat(testStat)},
		"get an empty": {read(proto.OpGetData, false), func(c *zk.Conn) (Answer, error) { return get(c.Get("/a/b")) }, body().Buffer([]byte{}).Stat(testStat)},
		"get, watch": {read(proto.OpGetData, true), func(c *zk.Conn) (Answer, error) {
			data, stat, _, err := c.GetW("/a/b")
			return get(data, stat, err)
		}, body().Buffer([]byte("data")).Stat(testStat)},
		"exists": {read(proto.OpExists, false), func(c *zk.Conn) (Answer, error) { return exists(c.Exists("/a/b")) }, body().Stat(testStat)},
		"exists, watch": {read(proto.OpExists, true), func(c *zk.Conn) (Answer, error) {
			isThere, stat, _, err := c.ExistsW("/a/b")
			return exists(isThere, stat, err)
		}, body().Stat(testStat)},
		"children": {read(proto.OpGetChildren2, false), func(c *zk.Conn) (Answer, error) { return list(c.Children("/a/b")) }, body().Strings([]string{"x", "", "yy"}).Stat(testStat)},
		"no child": {read(proto.OpGetChildren2, false), func(c *zk.Conn) (Answer, error) { return list(c.Children("/a/b")) }, body().Strings(nil).Stat(testStat)},
		"children, watch": {read(proto.OpGetChildren2, true), func(c *zk.Conn) (Answer, error) {
			children, stat, _, err := c.ChildrenW("/a/b")
			return list(children, stat, err)
		}, body().Strings([]string{"x"}).Stat(testStat)},
		"sync":           {Request{Op: proto.OpSync, Path: "/a"}, func(c *zk.Conn) (Answer, error) { return created(c.Sync("/a")) }, body().String("/a")},
		"checks":         {multi, checks, end(ok(ok(body())))},
		"first refused":  {multi, checks, end(refused(refused(body(), proto.CodeNoNode), proto.CodeRuntimeInconsistency))},
		"second refused": {multi, checks, end(refused(refused(body(), proto.CodeOK), proto.CodeNoAuth))},
	}
}

// Own requests are encoded as zk.Conn encodes the same, and their answers mean the same.
func TestRequestsAreThoseOfTheConn(t *testing.T) {
	for name, op := range operations() {
		for _, code := range []int32{proto.CodeOK, proto.CodeNoNode, proto.CodeNoAuth} {
			t.Run(fmt.Sprintf("%s %d", name, code), func(t *testing.T) {
				testkit.Bubble(t, func(t *testing.T) {
					conn, server := playServer(t)
					type result struct {
						answer Answer
						err    error
					}
					done := make(chan result, 1)
					go func() {
						a, err := op.ask(conn)
						done <- result{a, err}
					}()
					frame, err := readWhole(server)
					require.NoError(t, err)
					xid := proto.NewDecoder(frame[4:]).Int32()
					require.Equal(t, frame, appendFrame(nil, xid, &op.request))
					require.Equal(t, slices.Concat([]byte("before"), frame), appendFrame([]byte("before"), xid, &op.request))

					sent := answerFrame(xid, 9, code)
					if code == proto.CodeOK {
						sent = proto.NewEncoder().Raw(sent[4:]).Raw(op.body.Body()).Frame()
					}
					_, err = server.Write(sent)
					require.NoError(t, err)
					want := <-done
					got, ok := decodeAnswer(op.request.Op, code, sent[proto.HeaderSize:])
					require.True(t, ok)
					require.Equal(t, want.err, got.Err)
					if op.request.Op == proto.OpMulti && code == proto.CodeOK {
						require.Equal(t, want.answer.Refused, got.Refused)
					} else {
						require.Equal(t, -1, got.Refused)
					}
					if got.Err == nil {
						want.answer.Refused = got.Refused
						require.Equal(t, want.answer, got)
					}
					go conn.Close()
					synctest.Wait()
					_ = server.Close()
				})
			})
		}
	}
}

// A code of the server's means the same error as in zk.Conn.
func TestErrorsAreThoseOfTheConn(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		conn, server := playServer(t)
		for code := int32(-200); code <= 5; code++ {
			done := make(chan error, 1)
			go func() { done <- conn.Delete("/a", 1) }()
			frame, err := readWhole(server)
			require.NoError(t, err)
			_, err = server.Write(answerFrame(proto.NewDecoder(frame[4:]).Int32(), 9, code))
			require.NoError(t, err)
			require.Equal(t, <-done, errorOf(code), "code %d", code)
		}
		go conn.Close()
		synctest.Wait()
		_ = server.Close()
	})
}

// Unlike in zk.Conn, the answers to create2 and to the creation of a container have the stat.
func TestAnswersWithTheStatOfANewZnode(t *testing.T) {
	for _, op := range []int32{proto.OpCreate2, proto.OpCreateContainer} {
		answer := body().String("/a").Stat(testStat).Body()
		got, ok := decodeAnswer(op, proto.CodeOK, answer)
		require.True(t, ok)
		require.Equal(t, Answer{Path: "/a", Stat: testStat, Refused: -1}, got)
		_, ok = decodeAnswer(op, proto.CodeOK, answer[:len(answer)-1])
		require.False(t, ok)
	}
	create := Request{Op: proto.OpCreate, Path: "/a", Data: []byte("x"), ACL: testACL, Flags: 3}
	create2 := create
	create2.Op = proto.OpCreate2
	want := appendFrame(nil, -1001, &create)
	want[11] = proto.OpCreate2
	require.Equal(t, want, appendFrame(nil, -1001, &create2))
}
