package core

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// twoEnsembles are the explorer's model of the servers, and an ensemble of zktest, whose conformance to real servers has tests of its own. One
// session uses both. A unit of time is a millisecond.
type twoEnsembles struct {
	*world
	t        *testing.T
	srv      *zktest.Server
	random   *rand.Rand
	conn     net.Conn // nil while the session has no connection
	line     *line    // in the model
	id       int64
	password []byte
	said     []string
}

const unit = time.Millisecond

func startTwoEnsembles(t *testing.T, seed uint64) *twoEnsembles {
	t.Helper()
	random := rand.New(rand.NewPCG(seed, 0))
	lists := []int64{whole / 4, whole / 6, whole / 40}[random.IntN(3)] + 2 // so that no report is at the end of a session
	b := (&bounds{lists: lists, grants: [2]int64{whole, []int64{whole, whole / 2, whole / 3}[random.IntN(3)]}}).withDefaults()
	e := &twoEnsembles{
		world: &world{bounds: b, nextList: lists, clients: []client{{hasEnded: true}}},
		t:     t, random: random, password: make([]byte, proto.PasswordLength),
	}
	e.say("the servers report every %d, and grant %v", lists, b.grants)
	e.srv = zktest.NewServer(t, zktest.WithServers(3), zktest.WithTickTime(unit), zktest.WithTouchInterval(time.Duration(lists)*unit))
	for i, grant := range b.grants {
		e.srv.SetSessionTimeouts(time.Duration(grant)*unit, time.Duration(grant)*unit, e.srv.Addrs()[i])
	}
	t.Cleanup(e.drop)
	return e
}

func (e *twoEnsembles) say(format string, args ...any) {
	e.said = append(e.said, fmt.Sprintf("%5d: %5d ", e.now, e.leader[0].expiry)+fmt.Sprintf(format, args...))
}

func (e *twoEnsembles) drop() {
	if e.conn != nil {
		_ = e.conn.Close()
		e.conn = nil
	}
}

// exchange sends a frame, and returns a decoder of the answer.
func (e *twoEnsembles) exchange(frame []byte) *proto.Decoder {
	e.t.Helper()
	_, err := e.conn.Write(frame)
	require.NoError(e.t, err)
	size := make([]byte, 4)
	_, err = io.ReadFull(e.conn, size)
	require.NoError(e.t, err)
	body := make([]byte, proto.NewDecoder(size).Int32())
	_, err = io.ReadFull(e.conn, body)
	require.NoError(e.t, err)
	return proto.NewDecoder(body)
}

// connect connects the session to a server.
func (e *twoEnsembles) connect(server int) {
	e.t.Helper()
	e.drop()
	e.lineIDs++
	l := &line{id: e.lineIDs, server: server, session: e.leader[0].id, isNew: e.leader[0].id == 0}
	if l.isNew {
		l.session = 1
	}
	e.executeHandshake(l)
	e.line = l

	conn, err := e.srv.Dialer()("tcp", e.srv.Addrs()[server], time.Second)
	require.NoError(e.t, err)
	e.conn = conn
	d := e.exchange(proto.NewEncoder().Int32(0).Int64(0).Int32(whole).Int64(e.id).Buffer(e.password).Bool(false).Frame())
	d.Int32()
	granted, id, password := int64(d.Int32()), d.Int64(), d.Buffer()
	require.NoError(e.t, d.Err())
	require.Equal(e.t, e.isAlive(0), id != 0, strings.Join(e.said, "\n"))
	if id != 0 {
		require.Equal(e.t, e.bounds.grants[server], granted)
		e.id, e.password = id, password
	}
}

// next takes a random step in both.
func (e *twoEnsembles) next() {
	e.t.Helper()
	server := e.random.IntN(2)
	switch kind := e.random.IntN(12); {
	case kind < 2 || e.conn == nil:
		if e.servers[server].isCut {
			return // which refuses handshakes, or leaves them unanswered
		}
		e.say("connects to server %d", server)
		e.connect(server)
	case kind < 8:
		e.say("pings")
		e.touch(e.line)
		e.exchange(proto.NewEncoder().Int32(proto.XidPing).Int32(proto.OpPing).Frame())
	case kind == 8 && !e.servers[0].isCut && !e.servers[1].isCut:
		e.say("server %d is cut off", server)
		e.servers[server].isCut = true
		e.srv.Isolate(e.srv.Addrs()[server])
	case kind == 9:
		e.say("a new leader")
		if isCut := e.servers[e.line.server].isCut; !isCut {
			defer e.drop()
		}
		e.electLeader()
		e.srv.ElectLeader()
	}
}

// pass lets time pass. No step is at the instant of a report, because lists are even, or in the tick in which the session ends.
func (e *twoEnsembles) pass() {
	d := 2 * e.random.Int64N(e.bounds.grants[1]/4)
	switch e.now {
	case 0:
		d++
	case e.leader[0].expiry - d:
		d += 2
	}
	e.passUntil(e.now + d)
	time.Sleep(time.Duration(d) * unit) //nolint:forbidigo // virtual time
}

// The session ends at the same instant in the model of the explorer as in zktest, in random courses of requests, reports, handshakes at servers
// with other timeouts, servers that are cut off, and elections. zktest counts whole ticks, of one unit here.
func TestModelExpiresLikeAServer(t *testing.T) {
	ends := 0
	for seed := range uint64(testkit.Shorter(400, 100)) {
		testkit.Bubble(t, func(t *testing.T) {
			began := time.Now()
			e := startTwoEnsembles(t, seed)
			e.pass()
			e.connect(e.random.IntN(2))
			for range 40 {
				seen, isAlive := e.srv.Session(e.id)
				require.Equal(t, e.isAlive(0), isAlive, "seed %d:\n%s", seed, strings.Join(e.said, "\n"))
				if !isAlive {
					ends++
					return
				}
				require.Equal(t, e.leader[0].expiry+1, int64(seen.Expiry.Sub(began)/unit), "seed %d:\n%s", seed, strings.Join(e.said, "\n"))
				e.next()
				e.pass()
			}
		})
	}
	t.Log(ends, "sessions ended")
	require.Greater(t, ends, 20)
}
