package dial

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// The hosts of a round in every combination of what is known of them.
func TestOrderOfARound(t *testing.T) {
	const given, added, lastResort = 0, 1, 2
	for _, test := range []struct {
		kind              int
		isGood, isRetried bool
		rank              int
	}{
		{given, false, false, 0},
		{given, true, false, 0},
		{added, true, false, 0},
		{lastResort, true, false, 1},
		{given, true, true, 2},
		{added, true, true, 2},
		{lastResort, true, true, 2},
		{added, false, false, 3},
		{lastResort, false, false, 4},
		{given, false, true, 5},
		{added, false, true, 5},
		{lastResort, false, true, 5},
	} {
		h := newHosts(t, "other:1")
		candidate := host{server: "a:1", address: "a:1", isAdded: test.kind == added, isLastResort: test.kind == lastResort}
		h.chosen = host{server: "other:1", address: "other:1"}
		if test.isRetried {
			h.chosen = candidate
		}
		h.good = map[string]bool{"a:1": test.isGood}
		require.Equal(t, test.rank, h.rankLocked(candidate), "%+v", test)
	}
}

// Servers refuse the client if each did twice in a row, certainly if all of these were certain.
func TestRefusalsOfAllServers(t *testing.T) {
	steps := func(text string) (all []Refusal) {
		for _, r := range text {
			all = append(all, map[rune]Refusal{'-': NoRefusal, 'l': LikelyRefusal, 'c': CertainRefusal}[r])
		}
		return all
	}
	for of, want := range map[string]Refusal{
		"cc cc": CertainRefusal, "ccc ccc": CertainRefusal, "lcc lcc": CertainRefusal, "cc-cc cc": CertainRefusal,
		"ll cc": LikelyRefusal, "lc cc": LikelyRefusal, "cc lc": LikelyRefusal, "ll ll": LikelyRefusal, "lllc ll": LikelyRefusal,
		"c cc": NoRefusal, "cc c": NoRefusal, "cc ": NoRefusal, "cc cc-": NoRefusal, "ll l": NoRefusal, "cc cc-c": NoRefusal,
	} {
		h := newHosts(t, "a:1", "b:1")
		h.Next() // begins the round
		a, b, _ := strings.Cut(of, " ")
		var got Refusal
		for _, r := range steps(a) {
			got = h.noteFailure("a:1", r)
		}
		for _, r := range steps(b) {
			got = h.noteFailure("b:1", r)
		}
		require.Equal(t, want, got, of)
	}
}

// A server that was tried is known by its string. Others are taken as they are.
func TestHostsByTheirNames(t *testing.T) {
	require.Equal(t, "zk1", host{server: "zk1"}.name())
	require.Equal(t, "zk1", host{server: "zk1:1", address: "10.0.0.1:1"}.name())
	require.Equal(t, "zk1/10.0.0.1:1", host{server: "zk1:1", address: "10.0.0.1:1"}.String())
	require.Equal(t, "zk1:1", host{server: "zk1:1"}.String())
	a := &Attempt{to: host{server: "zk1:1", address: "10.0.0.1:1"}}
	require.True(t, a.IsResolved())
	require.Equal(t, []string{"zk1/10.0.0.1:1", "zk1:1"}, []string{a.Server(), a.Name()})
	a.to.address = "zk1:1"
	require.False(t, a.IsResolved())
}

// The configuration of an ensemble is refused as a whole if a line is too long, or names no host.
func TestConfigurationsThatAreNone(t *testing.T) {
	for _, config := range []string{
		"server.1=" + strings.Repeat("x", 1<<17), "server.1=zk1;2181", "server.1=:1:2;2181", "server.1=[::1:1:2;2181", "server.1=zk1:1:2;zk1:1:1",
	} {
		m, err := ParseMembers([]byte(config), false)
		require.ErrorIs(t, err, errNotConfig)
		require.Zero(t, m)
	}
	m, err := ParseMembers([]byte("server.1=zk1:1:2;zk1:65535\nserver.2=zk2:1:2;zk2:1"), false)
	require.NoError(t, err)
	require.Equal(t, []string{"zk1:65535", "zk2:1"}, m.Addresses)
}

// A reason why the configuration is not followed is told when it changes, and says what to do.
func TestWhyTheConfigurationIsNotFollowed(t *testing.T) {
	d := New(t.Context(), Config{}, &testOwner{patience: time.Second})
	defer func() { <-d.FinishUserCalls() }()
	tracker := d.Track()
	require.EqualError(t, tracker.Refused(zk.ErrNoNode), "the servers have no /zookeeper/config, which needs ZooKeeper 3.5: "+zk.ErrNoNode.Error())
	require.NoError(t, tracker.Refused(zk.ErrNoNode))
	require.Equal(t, zk.ErrNoAuth, tracker.Refused(zk.ErrNoAuth))
	_, err := tracker.Apply([]byte("version=x"), 7)
	require.ErrorIs(t, err, errNotConfig)
	_, err = tracker.Apply(nil, 7)
	require.ErrorContains(t, err, "0 of 0 servers")
	_, err = tracker.Apply([]byte("server.1=zk1:1:2\nserver.2=zk2:1:2;2181"), 7)
	require.ErrorContains(t, err, "1 of 2 servers")
	require.Nil(t, tracker.Members())
	changed, err := tracker.Apply([]byte("server.1=10.0.0.2:1:2;2181\nserver.2=10.0.0.1:1:2;2181\nversion=1"), 7)
	require.NoError(t, err)
	require.Equal(t, []string{"10.0.0.1:2181", "10.0.0.2:2181"}, changed)
	require.Equal(t, changed, tracker.Members())
	require.ErrorIs(t, tracker.Refused(zk.ErrNoNode), zk.ErrNoNode, "the configuration was followed meanwhile")
}

// The words of a server are text, an alert of TLS is not.
func TestAnswerToAWord(t *testing.T) {
	for first, isWord := range map[byte]bool{'Z': true, ' ': true, ' ' - 1: false, 21: false} {
		near, far := net.Pipe()
		go func() { // ends with the connection
			_, _ = io.ReadFull(far, make([]byte, 4))
			_, _ = far.Write([]byte{first})
			_ = far.Close()
		}()
		require.Equal(t, isWord, answersWord(near), "%d", first)
		_ = near.Close()
	}
	require.False(t, answersWord(deafConn{in: bytes.NewReader([]byte("Z"))}), "the word was not sent")
}

// deafConn is a connection that delivers, and takes nothing.
type deafConn struct {
	net.Conn
	in io.Reader
}

func (c deafConn) Read(p []byte) (int, error) { return c.in.Read(p) }
func (c deafConn) Write([]byte) (int, error)  { return 0, net.ErrClosed }

// A hang-up during TLS with a server outside the ensemble has unknown causes, and closes the socket.
func TestStartTLSWithAnotherServer(t *testing.T) {
	near, far := net.Pipe()
	go func() { // ends with the connection
		_, _ = far.Read(make([]byte, 1<<14))
		_ = far.Close()
	}()
	conn, err := StartTLS(t.Context(), near, TLSFor("kdc", &tls.Config{MinVersion: tls.VersionTLS12}), "kdc:88")
	require.Nil(t, conn)
	require.ErrorIs(t, err, io.EOF)
	require.ErrorContains(t, err, "TLS with kdc:88: ")
	require.ErrorContains(t, err, UnknownCause.String())
	_, err = near.Write([]byte{0})
	require.ErrorIs(t, err, io.ErrClosedPipe)
}

// The client shows the first certificate that the server may accept, and a refusal says which that was.
func TestWhichCertificateWasShown(t *testing.T) {
	own, _ := issue(t, "client")
	own.Leaf.Subject, own.Leaf.Issuer = pkix.Name{CommonName: "client"}, pkix.Name{CommonName: "authority"}
	requested := &tls.CertificateRequestInfo{Version: tls.VersionTLS13, SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256}}
	foreign := &tls.CertificateRequestInfo{
		Version: tls.VersionTLS13, SignatureSchemes: []tls.SignatureScheme{tls.ECDSAWithP256AndSHA256}, AcceptableCAs: [][]byte{{1}},
	}
	r := &certificateRequest{candidates: []tls.Certificate{own}}
	require.NoError(t, r.refusalReason())
	require.False(t, r.hasExpired())
	shown, err := r.chooseCertificate(requested)
	require.NoError(t, err)
	require.Equal(t, own.Certificate, shown.Certificate)
	require.Same(t, shown, r.shown)
	require.ErrorContains(t, r.refusalReason(), "the client certificate was ")
	require.False(t, r.hasExpired())

	r = &certificateRequest{candidates: []tls.Certificate{own}}
	shown, err = r.chooseCertificate(foreign)
	require.NoError(t, err)
	require.Empty(t, shown.Certificate, "a server may accept a client without one")
	require.ErrorContains(t, r.refusalReason(), "none of those given matches: ")

	r = &certificateRequest{}
	_, err = r.chooseCertificate(requested)
	require.NoError(t, err)
	require.ErrorIs(t, r.refusalReason(), ErrNoCertificate)

	failure := errors.New("no token")
	r = &certificateRequest{candidates: []tls.Certificate{own}, userChoice: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return nil, failure }}
	_, err = r.chooseCertificate(requested)
	require.ErrorIs(t, err, failure)
	require.ErrorIs(t, r.refusalReason(), ErrNoCertificate)
}

// A certificate outside its time is named with that time.
func TestTimesOfACertificate(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		certificate, _ := issue(t, "client") // from two days ago, for an hour
		leaf, err := x509.ParseCertificate(certificate.Certificate[0])
		require.NoError(t, err)
		r := &certificateRequest{isMade: true, shown: &certificate}
		pass(time.Until(leaf.NotAfter))
		require.ErrorContains(t, r.refusalReason(), "the client certificate was ")
		require.False(t, r.hasExpired())
		pass(1)
		require.ErrorContains(t, r.refusalReason(), "is only valid until "+leaf.NotAfter.Format(time.RFC3339))
		require.True(t, r.hasExpired())
		c := &tlsConn{server: "zk1:1", request: r}
		alert := &net.OpError{Op: "remote error", Err: errors.New("tls: expired certificate")}
		explained := c.explainError(alert)
		require.ErrorIs(t, explained, zkutil.ErrCertificateExpired)
		require.ErrorContains(t, explained, "TLS with zk1:1: ")
		require.ErrorContains(t, explained, ": of the client: ")
		require.NotErrorIs(t, c.explainError(io.EOF), zkutil.ErrCertificateExpired)
		require.ErrorContains(t, c.explainError(io.EOF), "is only valid until ")
		require.EqualError(t, c.explainError(os.ErrDeadlineExceeded), "TLS with zk1:1: "+os.ErrDeadlineExceeded.Error())
		require.ErrorContains(t, c.explainError(x509.CertificateInvalidError{Reason: x509.Expired, Cert: leaf}), ": of the server: ")
		require.NotErrorIs(t, c.explainError(x509.CertificateInvalidError{Reason: x509.NotAuthorizedToSign, Cert: leaf}), zkutil.ErrCertificateExpired)
	})
	testkit.Bubble(t, func(t *testing.T) {
		future, _ := issueFrom(t, time.Now().Add(time.Hour))
		r := &certificateRequest{isMade: true, shown: &future}
		require.ErrorContains(t, r.refusalReason(), "is only valid from ")
		require.False(t, r.hasExpired())
	})
}

// After some abandoned calls for a purpose further ones are refused, until one returns. Other purposes are not affected.
func TestAbandonedCallsAreBounded(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := New(t.Context(), Config{}, &testOwner{patience: time.Second})
		release := make(chan struct{})
		call := func(purpose string, fn func(context.Context) error) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return d.Call(ctx, purpose, fn)
		}
		nothing := func(context.Context) error { return nil }
		hang := func(context.Context) error { <-release; return nil }
		for range maxRunning {
			start := time.Now()
			require.ErrorIs(t, call("a", hang), context.DeadlineExceeded)
			require.Equal(t, time.Second, time.Since(start))
		}
		require.EqualError(t, call("a", nothing), fmt.Sprintf("%d abandoned calls are still running", maxRunning))
		require.NoError(t, call("b", nothing))
		release <- struct{}{}
		synctest.Wait()
		require.NoError(t, call("a", nothing))
		idle := d.FinishUserCalls()
		require.False(t, zkutil.IsClosed(idle))
		close(release)
		<-idle
		require.Empty(t, d.userCode.running)
	})
}

// A call that the session's end interrupts, and one that panics, fail. A panic is reported.
func TestEndsOfUserCalls(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		owner := &testOwner{patience: time.Second}
		d := New(ctx, Config{}, owner)
		err := d.Call(t.Context(), "a", func(context.Context) error { panic("odd") })
		require.ErrorIs(t, err, errPanic)
		require.EqualError(t, err, "panic: odd")
		require.EqualValues(t, 1, owner.panics.Load())
		require.ErrorIs(t, d.Call(t.Context(), "a", func(context.Context) error { return io.EOF }), io.EOF)
		var inner context.Context //nolint:fatcontext // its end is the subject
		require.NoError(t, d.Call(t.Context(), "a", func(ctx context.Context) error { inner = ctx; return nil }))
		require.Error(t, inner.Err(), "the context is released")
		time.AfterFunc(time.Minute, cancel)
		start := time.Now()
		require.ErrorIs(t, d.Call(t.Context(), "a", func(ctx context.Context) error { <-ctx.Done(); return nil }), context.Canceled)
		require.Equal(t, time.Minute, time.Since(start))
		<-d.FinishUserCalls()
	})
}

// A dialer may take a moment longer than its timeout. A connection that comes later is closed.
func TestDialerThatTakesTooLong(t *testing.T) {
	const timeout = time.Second
	for takes, isLate := range map[time.Duration]bool{timeout: false, timeout + dialGrace - 1: false, timeout + dialGrace + 1: true, time.Hour: true} {
		testkit.Bubble(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer func() { _ = far.Close() }()
			d := New(t.Context(), Config{Dialer: func(string, string, time.Duration) (net.Conn, error) {
				time.Sleep(takes) //nolint:forbidigo // virtual time
				return near, nil
			}}, &testOwner{patience: time.Minute})
			start := time.Now()
			conn, err := d.Open("tcp", "a:1", timeout)
			require.Equal(t, min(takes, timeout+dialGrace), time.Since(start))
			if !isLate {
				require.NoError(t, err)
				require.NoError(t, conn.Close())
				<-d.FinishUserCalls()
				return
			}
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			require.ErrorContains(t, err, "dial a:1: the dialer did not return within 1s")
			<-d.FinishUserCalls()
			_, err = near.Write([]byte{0})
			require.ErrorIs(t, err, io.ErrClosedPipe)
		})
	}
	testkit.Bubble(t, func(t *testing.T) {
		d := New(t.Context(), Config{Dialer: func(string, string, time.Duration) (net.Conn, error) { return nil, nil }}, &testOwner{}) //nolint:nilnil // as the test says
		_, err := d.Open("tcp", "a:1", timeout)
		require.ErrorIs(t, err, errNothing)
		<-d.FinishUserCalls()
		_, err = d.Open("tcp", "a:1", timeout)
		require.ErrorIs(t, err, zkutil.ErrClosed)
		require.ErrorContains(t, err, "dial a:1: ")
	})
}

// Lookups that the session's end refuses leave names without an address, and with a reason.
func TestLookupsAfterTheEnd(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h, _ := newResolvingHosts(t, false, "zk1:2181")
		h.names.run = func(func()) bool { return false }
		start := time.Now()
		server, _ := h.Next()
		require.Equal(t, "zk1:2181", server)
		require.Zero(t, time.Since(start))
		require.ErrorIs(t, h.find(server).err, zkutil.ErrClosed)
		require.NoError(t, h.names.pending())
	})
}

// A bounded number of servers is asked why they hang up, each once, and all again after a server answered.
func TestCausesAreBounded(t *testing.T) {
	d := New(t.Context(), Config{}, &testOwner{patience: time.Second})
	asked := 0
	ask := func(server string) Cause {
		return d.findCause(t.Context(), host{server: server, address: server}, func(context.Context) (net.Conn, error) {
			asked++
			near, far := net.Pipe()
			_ = far.Close()
			return near, nil
		})
	}
	for i := range maxCauses + 3 {
		want := ClosedUnasked
		if i >= maxCauses {
			want = UnknownCause
		}
		require.Equal(t, want, ask(fmt.Sprint(i)))
		require.Equal(t, want, ask(fmt.Sprint(i)), "remembered")
	}
	require.Equal(t, maxCauses, asked)
	d.noteAnswer()
	require.Equal(t, UnknownCause, ask("0"), "it served this client, so the reason is another")
	require.Equal(t, maxCauses, asked)
	require.Empty(t, d.causes)
}

// Former members are found by their names and, unless names matter, by their addresses with the port.
func TestWhoHasLeft(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		for _, isByName := range []bool{false, true} {
			n := following(t, "zk1:1", "zk2:1")
			n.isByName = isByName
			n.follow([]string{"zk1:1", "zk2:1"})
			n.resolve(time.Second, true)
			n.follow([]string{"zk2:1"})
			for h, want := range map[host]bool{
				{server: "zk1:1", address: "10.0.0.1:1"}:      true,
				{server: "10.0.0.1:1", address: "10.0.0.1:1"}: !isByName,
				{server: "10.0.0.1:2", address: "10.0.0.1:2"}: false,
				{server: "zk2:1", address: "10.0.0.2:1"}:      false,
			} {
				require.Equal(t, want, n.hasLeft(h), "%+v, by name: %t", h, isByName)
			}
			require.False(t, slices.ContainsFunc(n.servers, func(s server) bool { return s.text == "zk1:1" }))
		}
	})
}

// readResult is a connection whose reads have one result.
type readResult struct {
	net.Conn
	n   int
	err error
}

func (r readResult) Read([]byte) (int, error) { return r.n, r.err }

// A hang-up is blamed on the missing client certificate before the server sent any data, an alert at any time, and nothing else is explained.
func TestWhichReadsOverTLSAreExplained(t *testing.T) {
	alert := &net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}
	own, _ := issue(t, "client")
	for _, test := range []struct {
		isMade, isShown, hasAnswer bool
		err                        error
		isExplained, isMissing     bool
	}{
		{isMade: true, err: io.EOF, isExplained: true, isMissing: true},
		{isMade: true, hasAnswer: true, err: io.EOF},
		{isMade: true, isShown: true, err: io.EOF},
		{err: io.EOF},
		{isMade: true, err: alert, isExplained: true, isMissing: true},
		{isMade: true, hasAnswer: true, err: alert, isExplained: true, isMissing: true},
		{isMade: true, isShown: true, err: alert, isExplained: true},
		{err: alert, isExplained: true},
		{isMade: true, err: os.ErrDeadlineExceeded},
		{isMade: true},
	} {
		c := &tlsConn{server: "zk1:1", request: &certificateRequest{isMade: test.isMade}}
		if test.isShown {
			c.request.shown = &own
		}
		if test.hasAnswer {
			c.Conn = readResult{n: 1}
			n, err := c.Read(nil)
			require.NoError(t, err)
			require.Equal(t, 1, n)
		}
		c.Conn = readResult{err: test.err}
		_, err := c.Read(nil)
		require.ErrorIs(t, err, test.err)
		require.Equal(t, test.isMissing, errors.Is(err, ErrNoCertificate), "%+v", test)
		if test.isExplained {
			require.ErrorContains(t, err, "TLS with zk1:1: ")
		} else {
			require.Equal(t, test.err, err, "%+v", test)
		}
	}
}
