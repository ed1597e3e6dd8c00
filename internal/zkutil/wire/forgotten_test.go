package wire

import (
	"fmt"
	"io"
	"net"
	"os"
	"slices"
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
	partial []byte   // sent before it closes the connection of a refused session
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
			_, _ = server.Write(p.partial)
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

// A server hangs up within its answer to the handshake, after any number of bytes, and later turns out to have forgotten the session.
// The wire's own answer replaces the bytes.
func TestForgottenAfterAPartialAnswer(t *testing.T) {
	for n := range handshakeFrame(7) {
		testkit.Bubble(t, func(t *testing.T) {
			o := &testOwner{period: time.Second, patience: time.Second}
			p := &prober{answers: [][]byte{handshakeFrame(9), goodbye(1, 0)}, partial: handshakeFrame(7)[:n]}
			w := New(t.Context(), dial.Config{Dialer: p.dial}, o)
			t.Cleanup(w.Close)
			_, err := p.shake(w, 50, 7)
			require.Error(t, err)
			pass(o.GiveUpAfter())
			id, err := p.shake(w, 50, 7)
			require.NoError(t, err, "after %d bytes", n)
			require.Zero(t, id)
		})
	}
}

// A probe that can't be opened, bounded or written has no result.
func TestProbesThatFail(t *testing.T) {
	for name, test := range map[string]struct {
		conn *faultyConn
		err  error
	}{
		"no connection": {nil, errFault},
		"no deadline":   {&faultyConn{failsDeadlines: true}, nil},
		"no write":      {&faultyConn{failsWrites: true}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				o := &testOwner{period: time.Second, patience: time.Second}
				p := &prober{answers: [][]byte{handshakeFrame(9), goodbye(1, 0)}}
				dials := 0
				w := New(t.Context(), dial.Config{Dialer: func(network, address string, limit time.Duration) (net.Conn, error) {
					if dials++; dials < 3 || test.err != nil && dials == 3 {
						conn, err := p.dial(network, address, limit)
						if dials == 3 {
							_ = conn.Close()
							return nil, test.err
						}
						return conn, err
					}
					client, server := net.Pipe()
					go func() { // answers without a question; ends with the connection
						_, _ = server.Write(slices.Concat(p.answers...))
						_ = server.Close()
					}()
					test.conn.Conn = client
					return test.conn, nil
				}}, o)
				t.Cleanup(w.Close)
				_, err := p.shake(w, 50, 7)
				require.ErrorIs(t, err, io.EOF)
				pass(o.GiveUpAfter())
				_, err = p.shake(w, 50, 7)
				require.ErrorIs(t, err, io.EOF)
				require.Equal(t, 3, dials)
				require.Empty(t, o.forgottenBy)
				require.Nil(t, w.probing)
				if test.conn != nil {
					require.EqualValues(t, 1, test.conn.closes.Load())
				}
			})
		})
	}
}

// A wire that was closed meanwhile does not begin a probe.
func TestClosedWireBeginsNoProbe(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		o := &testOwner{period: time.Second, patience: time.Second}
		p := &prober{answers: [][]byte{handshakeFrame(9), goodbye(1, 0)}}
		w := New(t.Context(), dial.Config{Dialer: p.dial}, o)
		w.Close()
		require.Equal(t, noVerdict, w.probe("a:1", 50))
		require.Empty(t, p.got)
		pass(o.GiveUpAfter())
		require.False(t, w.mayProbe("a:1"))
		pass(o.GiveUpAfter())
		require.False(t, w.mayProbe("a:1"))
	})
}

// Each server is probed once in a third of the time after which the session is given up, and by no means before the session was
// refused for that time since the latest sign that a server remembers it.
func TestWhenServersAreProbed(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		o := &testOwner{period: time.Second, patience: time.Second}
		wait, third := o.GiveUpAfter(), o.GiveUpAfter()/probesPerTimeout
		w := newTestWire(t, o, nil)
		require.False(t, w.mayProbe("a"), "the first refusal")
		pass(wait - 1)
		require.False(t, w.mayProbe("a"))
		pass(1)
		require.True(t, w.mayProbe("a"))
		require.False(t, w.mayProbe("a"))
		require.True(t, w.mayProbe("b"))
		pass(third - 1)
		require.False(t, w.mayProbe("a"))
		pass(1)
		require.True(t, w.mayProbe("a"))
		require.True(t, w.mayProbe("b"))
		pass(wait)
		require.True(t, w.mayProbe("a"))
		require.Len(t, w.refusals.probedAt, 2)
		pass(1)
		require.True(t, w.mayProbe("c"))
		require.Len(t, w.refusals.probedAt, 2, "the time of b no longer matters")
	})
	for name, answers := range map[string][][]byte{"remembered": {handshakeFrame(9), goodbye(50, 0)}, "no verdict": {handshakeFrame(9)}} {
		testkit.Bubble(t, func(t *testing.T) {
			o, p := &testOwner{period: time.Second, patience: time.Second}, &prober{answers: answers}
			w := New(t.Context(), dial.Config{Dialer: p.dial}, o)
			t.Cleanup(w.Close)
			var probes []time.Duration
			for start := time.Now(); time.Since(start) <= 3*o.GiveUpAfter(); pass(o.period) {
				before := p.dials.Load()
				_, err := p.shake(w, 50, 7)
				require.ErrorIs(t, err, io.EOF)
				if p.dials.Load() == before+2 {
					probes = append(probes, time.Since(start)/o.period)
				}
			}
			want := []time.Duration{6, 8, 10, 12, 14, 16, 18} // every third of GiveUpAfter
			if name == "remembered" {
				want = []time.Duration{6, 13} // the next refusal is the first
			}
			require.Equal(t, want, probes, name)
		})
	}
}

// The patience doubles after each probe that took too long, up to a limit, and after no other failure.
func TestPatienceWithSlowProbes(t *testing.T) {
	w := newTestWire(t, &testOwner{period: time.Second, patience: time.Second}, nil)
	var got []time.Duration
	for range maxSlowProbes + 2 {
		w.noteProbeFailure(io.EOF)
		got = append(got, w.probePatience())
		w.noteProbeFailure(fmt.Errorf("probe: %w", os.ErrDeadlineExceeded))
	}
	require.Equal(t, []time.Duration{1, 2, 4, 8, 16, 32, 32}, seconds(got))

	for _, answers := range [][][]byte{nil, {handshakeFrame(9)}} { // silent at once, or after the handshake
		testkit.Bubble(t, func(t *testing.T) {
			o := &testOwner{period: time.Second, patience: time.Second}
			p := &prober{answers: answers}
			w := New(t.Context(), dial.Config{Dialer: func(network, address string, limit time.Duration) (net.Conn, error) {
				if p.dials.Load() < 2 {
					return p.dial(network, address, limit)
				}
				client, server := net.Pipe()
				go func() { // ends with the connection
					for _, answer := range answers {
						_, _ = readWhole(server)
						_, _ = server.Write(answer)
					}
					_, _ = io.Copy(io.Discard, server)
				}()
				return client, nil
			}}, o)
			t.Cleanup(w.Close)
			_, err := p.shake(w, 50, 7)
			require.ErrorIs(t, err, io.EOF)
			pass(o.GiveUpAfter())
			start := time.Now()
			_, err = p.shake(w, 50, 7)
			require.ErrorIs(t, err, io.EOF)
			require.Equal(t, time.Second, time.Since(start))
			require.Equal(t, 2*time.Second, w.probePatience())
		})
	}
}

func seconds(times []time.Duration) (whole []time.Duration) {
	for _, d := range times {
		whole = append(whole, d/time.Second)
	}
	return whole
}
