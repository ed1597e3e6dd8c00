package wire

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/dial"
)

// greeting is the request of a handshake as zk.Conn sends it.
func greeting(zxid, id int64) []byte {
	return proto.NewEncoder().Int32(0).Int64(zxid).Int32(6000).Int64(id).Buffer(make([]byte, proto.PasswordLength)).Frame()
}

func goodbye(zxid int64, code int32) []byte {
	return proto.NewEncoder().Int32(1).Int64(zxid).Int32(code).Frame()
}

// longGoodbye is goodbye with more bytes behind it, as many as make a size.
func longGoodbye(zxid int64, size int) []byte {
	return proto.NewEncoder().Raw(goodbye(zxid, 0)[4:]).Raw(make([]byte, size-16)).Frame()
}

// prober is a server that refuses a session, with its answers to a probe.
type prober struct {
	answers [][]byte // to the frames of a probe, one after the other; then it closes the connection
	got     [][]byte // the frames of all probes
	dials   atomic.Int32
}

func (p *prober) dial(string, string, time.Duration) (net.Conn, error) {
	p.dials.Add(1)
	client, server := net.Pipe()
	go func() {
		defer func() { _ = server.Close() }()
		frame, err := readWhole(server)
		if err != nil || claimOf(frame).sessionID != 0 {
			return
		}
		for _, answer := range p.answers {
			p.got = append(p.got, frame)
			if _, err = server.Write(answer); err != nil {
				return
			}
			if frame, err = readWhole(server); err != nil {
				return
			}
		}
	}()
	return client, nil
}

// shake is zk.Conn's handshake on a new connection. It returns the session id in the answer.
func (p *prober) shake(w *Wire, zxid, id int64) (answered int64, err error) {
	conn, err := w.Dial("tcp", "a:1", 0)
	if err != nil {
		return -1, err
	}
	if _, err = conn.Write(greeting(zxid, id)); err != nil {
		return -1, err
	}
	frame, err := readWhole(conn)
	if err != nil {
		return -1, err
	}
	d := proto.NewDecoder(frame)
	d.Int32() // the length
	d.Int32()
	d.Int32()
	return d.Int64(), d.Err()
}

func TestProbeRecognizesForgetfulServers(t *testing.T) {
	const seen = 100
	expired := proto.NewEncoder().Int32(0).Int32(0).Int64(0).Buffer(make([]byte, proto.PasswordLength)).Frame()
	for name, c := range map[string]struct {
		answers  [][]byte
		isForgot bool
	}{
		"no quorum":                       {nil, false},
		"an earlier zxid":                 {[][]byte{handshakeFrame(9), goodbye(seen-1, 0)}, true},
		"the same zxid":                   {[][]byte{handshakeFrame(9), goodbye(seen, 0)}, false},
		"a later zxid":                    {[][]byte{handshakeFrame(9), goodbye(seen+1, 0)}, false},
		"the close is refused":            {[][]byte{handshakeFrame(9), goodbye(0, -124)}, true},
		"no answer to the close":          {[][]byte{handshakeFrame(9)}, false},
		"a session that has ended":        {[][]byte{expired, goodbye(1, 0)}, false},
		"a short handshake":               {[][]byte{proto.NewEncoder().Int32(0).Frame(), goodbye(1, 0)}, false},
		"a short answer to the close":     {[][]byte{handshakeFrame(9), proto.NewEncoder().Int32(1).Frame()}, false},
		"an answer of another protocol":   {[][]byte{[]byte("HTTP/1.1 400 Bad Request\r\n\r\n")}, false},
		"an answer of a kilobyte":         {[][]byte{handshakeFrame(9), longGoodbye(seen-1, 1<<10)}, true},
		"more than an answer can be long": {[][]byte{handshakeFrame(9), longGoodbye(seen-1, 1<<10+1)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				p, o := &prober{answers: c.answers}, &testOwner{period: time.Second, patience: time.Second}
				w := New(t.Context(), dial.Config{Dialer: p.dial}, o)
				t.Cleanup(w.Close)
				w.noteZxid(seen) // which zk.Conn does not know

				_, err := p.shake(w, 50, 7)
				require.ErrorIs(t, err, io.EOF)
				pass(o.GiveUpAfter() - 1)
				_, err = p.shake(w, 50, 7)
				require.ErrorIs(t, err, io.EOF)
				require.EqualValues(t, 2, p.dials.Load(), "too early for a probe")

				pass(1)
				id, err := p.shake(w, 50, 7)
				require.EqualValues(t, 4, p.dials.Load())
				require.Equal(t, c.isForgot, err == nil, err)
				if !c.isForgot {
					require.Empty(t, o.forgottenBy)
					return
				}
				require.Zero(t, id)
				require.Equal(t, []string{"a:1"}, o.forgottenBy)
				require.Zero(t, w.lastZxid)
				require.Equal(t, claim{}, claimOf(p.got[0]))
				d := proto.NewDecoder(p.got[1])
				d.Int32() // the length
				require.Equal(t, []int32{1, proto.OpCloseSession}, []int32{d.Int32(), d.Int32()})
			})
		})
	}
}

// A handshake of no session has nothing to forget: its refusal has another cause.
func TestNewSessionsAreNotProbedFor(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		dials := 0
		o := &testOwner{period: time.Second, patience: time.Second}
		w := New(t.Context(), dial.Config{Dialer: func(string, string, time.Duration) (net.Conn, error) {
			dials++
			client, server := net.Pipe()
			go func() {
				defer func() { _ = server.Close() }()
				_, _ = readWhole(server)
			}()
			return client, nil
		}}, o)
		t.Cleanup(w.Close)
		for range 5 {
			_, err := new(prober).shake(w, 0, 0)
			require.ErrorIs(t, err, io.EOF)
			require.NotContains(t, o.failure.Error(), "forgotten")
			pass(o.GiveUpAfter())
		}
		require.Equal(t, 6, dials, "one of them asks for the cause of the hang-up")
	})
}

// The error of a refused session contains the cause, before the session is abandoned.
func TestRefusedSessionNamesItsCauses(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		o, p := &testOwner{period: time.Second, patience: time.Second}, &prober{}
		w := New(t.Context(), dial.Config{Dialer: p.dial}, o)
		t.Cleanup(w.Close)
		_, err := p.shake(w, 50, 7)
		require.ErrorIs(t, err, io.EOF)
		require.ErrorIs(t, o.failure, io.EOF)
		require.ErrorContains(t, o.failure, "no quorum")
		require.ErrorContains(t, o.failure, "lost transactions")
	})
}

// The wire does not wait for a probe that gets no answer.
func TestCloseEndsAProbe(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		o, p := &testOwner{period: time.Second, patience: time.Hour}, &prober{}
		w := New(t.Context(), dial.Config{Dialer: func(network, address string, limit time.Duration) (net.Conn, error) {
			if p.dials.Load() < 2 {
				return p.dial(network, address, limit)
			}
			p.dials.Add(1)
			client, server := net.Pipe()
			t.Cleanup(func() { _ = server.Close() })
			go func() { _, _ = readWhole(server) }()
			return client, nil
		}}, o)
		_, err := p.shake(w, 50, 7)
		require.ErrorIs(t, err, io.EOF)
		pass(o.GiveUpAfter())
		ended := make(chan error, 1)
		go func() {
			_, err := p.shake(w, 50, 7)
			ended <- err
		}()
		pass(time.Minute)
		require.EqualValues(t, 3, p.dials.Load(), "the probe is under way")
		w.Close()
		start := time.Now()
		require.ErrorIs(t, <-ended, io.EOF)
		require.Zero(t, time.Since(start))
		require.Empty(t, o.forgottenBy)
	})
}
