package wire

import (
	"crypto/tls"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// promptPipe claims to write promptly, and shows the writer, because its writes block until the server reads.
type promptPipe struct{ net.Conn }

func (promptPipe) WritesPromptly() {}

// openPromptScript returns a line over a promptPipe whose handshake was answered.
func openPromptScript(t *testing.T) *script {
	t.Helper()
	s := dialPromptScript(t)
	s.open()
	synctest.Wait() // until the first look of the writer
	return s
}

func dialPromptScript(t *testing.T) *script {
	t.Helper()
	client, server := net.Pipe()
	o := &testOwner{period: time.Second, patience: time.Minute}
	return dialAgain(t, newTestWire(t, o, promptPipe{client}), o, server)
}

// isWrittenBySender sends a request, and reports whether the sender is in its write.
func (s *script) isWrittenBySender(send func()) bool {
	s.t.Helper()
	sent := make(chan struct{})
	go func() { send(); close(sent) }() // ends at the latest when the line is closed
	synctest.Wait()
	select {
	case <-sent:
		return false
	default:
		return true
	}
}

// The sender writes if everything was answered, on a connection that takes a short write at once. In all other cases
// Send returns at once, and the line's writer writes.
func TestWhoWrites(t *testing.T) {
	answered := func(s *script, request func()) {
		go request()
		xid, _, _ := s.next()
		synctest.Wait()
		s.deliver(dataFrame(xid, 1))
		synctest.Wait()
	}
	for name, test := range map[string]struct {
		before     func(s *script)
		path       string
		isBySender bool
	}{
		"the first request":          {func(*script) {}, "/1", true},
		"behind an answered one":     {func(s *script) { answered(s, func() { s.ask("/0") }) }, "/1", true},
		"behind zk.Conn's, answered": {func(s *script) { answered(s, func() { s.conn(requestFrame(1, proto.OpGetData, "/user", false)) }) }, "/1", true},
		"an answer is due":           {func(s *script) { go s.ask("/0"); s.next(); synctest.Wait() }, "/1", false},
		"zk.Conn's answer is due": {func(s *script) {
			go s.conn(requestFrame(1, proto.OpGetData, "/user", false))
			s.next()
			synctest.Wait()
		}, "/1", false},
		"a ping is not answered": {func(s *script) {
			go func() { _ = s.sendFrame(proto.XidPing, proto.OpPing, pingFrame()) }()
			s.next()
			synctest.Wait()
		}, "/1", false},
		"longer than a socket takes": {func(*script) {}, "/" + string(make([]byte, shortWrite)), false},
		"of an unknown connection":   {func(s *script) { s.isPrompt.Store(writesPromptly(s.server)) }, "/1", false},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				s := openPromptScript(t)
				test.before(s)
				require.Equal(t, test.isBySender, s.isWrittenBySender(func() { s.ask(test.path) }))
				s.requireSent(test.path)
				s.wire.Close()
			})
		})
	}
}

// A request sent during a write leaves after it, with any writer.
func TestSentDuringAWrite(t *testing.T) {
	for name, write := range map[string]func(s *script){
		"of a sender":  func(s *script) { s.ask("/0") },
		"of zk.Conn's": func(s *script) { s.conn(requestFrame(1, proto.OpGetData, "/0", false)) },
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				s := openPromptScript(t)
				require.True(t, s.isWrittenBySender(func() { write(s) }))
				require.False(t, s.isWrittenBySender(func() { s.ask("/1") }))
				require.False(t, s.isWrittenBySender(func() { s.ask("/2") }))
				for _, path := range []string{"/0", "/1", "/2"} {
					s.requireSent(path)
				}
				s.wire.Close()
			})
		})
	}
}

// A sender writes no more than the writer may: nothing ahead of zk.Conn's credentials, nothing on the connection of an
// expired session, nothing on one that was abandoned.
func TestSenderWritesOnlyWhenTheWriterMay(t *testing.T) {
	for name, prepare := range map[string]func(s *script) *script{
		"credentials are not presented yet": func(s *script) *script {
			s.wire.credentials = []credential{"c"}
			s.open()
			return s
		},
		"the session has expired": func(s *script) *script {
			go s.readAll()
			s.deliver(handshakeFrame(0))
			<-s.read
			return s
		},
		"abandoned": func(s *script) *script {
			s.open()
			go s.request(proto.OpDelete, "/0")
			s.next()
			synctest.Wait()
			s.Abandon()
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				s := prepare(dialPromptScript(t))
				require.False(t, s.isWrittenBySender(func() { s.ask("/1") }))
				s.requireHeldBack()
				_ = s.server.Close()
				_ = s.Close()
				s.wire.Close()
				require.Contains(t, s.answer.paths(), "/1", "it gets its answer")
			})
		})
	}
}

// A sender's write fails. The line ends, and each request gets one answer.
func TestSenderFailsToWrite(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := openPromptScript(t)
		s.Conn = brokenConn{s.Conn}
		s.ask("/1", "/2")
		require.True(t, isUnanswered(s.answer.errs()[0]))
		require.True(t, isUnanswered(s.answer.errs()[1]))
		require.Error(t, <-s.ended)
		require.ErrorContains(t, s.Failure(), "broken pipe")
		s.ask("/3")
		require.Len(t, s.answer.errs(), 3)
		require.True(t, isUnsent(s.answer.errs()[2]))
	})
}

// After a quiet time the sender's request follows a ping, like the writer's.
func TestSenderPingsAfterAQuietTime(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := openPromptScript(t)
		s.beQuiet()
		require.True(t, s.isWrittenBySender(func() { s.ask("/1") }))
		xid, _, _ := s.next()
		require.EqualValues(t, proto.XidPing, xid)
		s.requireSent("/1")
		s.wire.Close()
	})
}

// A sender that pings after a quiet time writes only its own request. The writer sends requests that others add
// meanwhile.
func TestSenderLeavesWhatOthersAdd(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := openPromptScript(t)
		s.beQuiet()
		sent := make(chan struct{})
		go func() { s.ask("/1"); close(sent) }()
		synctest.Wait() // until it is in the write of the ping
		require.False(t, s.isWrittenBySender(func() { s.ask("/" + string(make([]byte, shortWrite))) }))
		xid, _, _ := s.next()
		require.EqualValues(t, proto.XidPing, xid)
		s.requireSent("/1")
		<-sent
		s.next()
		s.wire.Close()
	})
}

// TCP takes a short write at once. Of other connections that is not known.
func TestWhichConnectionsWritePromptly(t *testing.T) {
	pipe, other := net.Pipe()
	t.Cleanup(func() { _ = pipe.Close() })
	t.Cleanup(func() { _ = other.Close() })
	require.True(t, writesPromptly(&net.TCPConn{}))
	require.True(t, writesPromptly(promptPipe{pipe}))
	require.False(t, writesPromptly(pipe))
	require.False(t, writesPromptly(struct{ *net.TCPConn }{&net.TCPConn{}}), "a user's, whose Write may do anything")
	require.False(t, writesPromptly(tls.Client(&net.TCPConn{}, &tls.Config{}))) //nolint:gosec // never used
}
