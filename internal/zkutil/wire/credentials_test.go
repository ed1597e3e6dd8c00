package wire

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

func credentialFrame(xid int32, id string) []byte {
	return proto.NewEncoder().Int32(xid).Int32(proto.OpAuth).Int32(0).String("digest").String(id).Frame()
}

// conn writes a frame as zk.Conn does.
func (s *script) conn(frame []byte) {
	s.t.Helper()
	_, err := s.Write(frame)
	require.NoError(s.t, err)
}

// present has zk.Conn present a credential, which the server answers with a code.
func (s *script) present(xid int32, id string, code int32) {
	s.t.Helper()
	go s.conn(credentialFrame(xid, id))
	_, op, _ := s.next()
	require.EqualValues(s.t, proto.OpAuth, op)
	synctest.Wait()
	s.deliver(answerFrame(xid, 0, code))
	<-s.read
}

// requireHeldBack checks that the request was not written yet.
func (s *script) requireHeldBack() {
	s.t.Helper()
	synctest.Wait()
	require.NoError(s.t, s.server.SetReadDeadline(time.Now().Add(time.Nanosecond)))
	_, err := s.server.Read(make([]byte, 1))
	require.Error(s.t, err, "it was written")
	require.NoError(s.t, s.server.SetReadDeadline(time.Time{}))
}

// requireSent requires that the next request at the server is the one for path.
func (s *script) requireSent(path string) {
	s.t.Helper()
	_, _, got := s.next()
	require.Equal(s.t, path, got)
}

// After a reconnect, own requests follow all credentials that zk.Conn presents again.
func TestOwnRequestsComeBehindTheCredentials(t *testing.T) {
	for name, test := range map[string]struct {
		first func(s *script) *script // on the first connection
		again []string                // what zk.Conn presents on the second
	}{
		"none":  {func(s *script) *script { return s }, nil},
		"one":   {func(s *script) *script { s.present(1, "a:a", 0); return s }, []string{"a:a"}},
		"two":   {func(s *script) *script { s.present(1, "a:a", 0); s.present(2, "b:b", 0); return s }, []string{"a:a", "b:b"}},
		"twice": {func(s *script) *script { s.present(1, "a:a", 0); s.present(2, "a:a", 0); return s }, []string{"a:a", "a:a"}},
		"two at once, which zk.Conn keeps the other way round": {func(s *script) *script {
			go func() { s.conn(credentialFrame(1, "a:a")); s.conn(credentialFrame(2, "b:b")) }()
			s.next()
			s.next()
			synctest.Wait()
			s.deliver(answerFrame(1, 0, 0), answerFrame(2, 0, 0))
			<-s.read
			<-s.read
			return s
		}, []string{"b:b", "a:a"}},
		"one that was refused":       {func(s *script) *script { s.present(1, "a:a", 0); s.present(2, "b:b", proto.CodeAuthFailed); return s }, []string{"a:a"}},
		"one that was not answered":  {func(s *script) *script { go s.conn(credentialFrame(1, "a:a")); s.next(); return s }, nil},
		"one after other requests":   {func(s *script) *script { s.ask("/x"); s.next(); s.present(1, "a:a", 0); return s }, []string{"a:a"}},
		"presented again in between": {func(s *script) *script { s.present(1, "a:a", 0); s = s.reconnect(); s.present(2, "a:a", 0); return s }, []string{"a:a"}},
		"one more after a reconnect": {func(s *script) *script {
			s.present(1, "a:a", 0)
			s = s.reconnect()
			s.present(2, "a:a", 0)
			s.present(3, "b:b", 0)
			return s
		}, []string{"a:a", "b:b"}},
		"zk.Conn lacked one, see (1)": {func(s *script) *script {
			// (1) The connection ended before AddAuth put the credential into zk.Conn's list. The next connection was
			// up before that, too, so the credential was not presented there.
			s.present(1, "a:a", 0)
			s = s.reconnect()
			s.present(2, "b:b", 0)
			return s
		}, []string{"a:a", "b:b"}},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				s := openScript(t)
				s = test.first(s).reconnect()
				s.ask("/1")
				for i, id := range test.again {
					s.requireHeldBack()
					go s.conn(credentialFrame(int32(10+i), id))
					_, op, _ := s.next()
					require.EqualValues(t, proto.OpAuth, op)
				}
				s.requireSent("/1")
				s.wire.Close()
			})
		})
	}
}

// zk.Conn presents fewer credentials than it was seen to keep, because AddAuth did not put one into its list yet, or because
// it is being closed. Any other request of zk.Conn, at the latest its ping, shows that it presented them all.
func TestCredentialsThatAreNotPresentedAgain(t *testing.T) {
	ping := proto.NewEncoder().Int32(proto.XidPing).Int32(proto.OpPing).Frame()
	for _, frame := range [][]byte{ping, requestFrame(9, proto.OpGetData, "/user", false)} {
		testkit.Bubble(t, func(t *testing.T) {
			s := openScript(t)
			s.present(1, "a:a", 0)
			s.present(2, "b:b", 0)
			s = s.reconnect()
			s.ask("/1")
			go s.conn(credentialFrame(10, "a:a"))
			s.next()
			s.requireHeldBack()
			go s.conn(frame)
			s.next()
			s.requireSent("/1")
			s.wire.Close()
		})
	}
}

// A credential is refused when it is presented again: zk.Conn closes the connection, and nothing was sent.
func TestCredentialIsRefusedAfterAReconnect(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		s.present(1, "a:a", 0)
		s.present(2, "b:b", 0)
		s = s.reconnect()
		s.ask("/1")
		s.present(10, "a:a", proto.CodeAuthFailed)
		_ = s.Close()
		require.Len(t, s.answer.errs(), 1)
		require.True(t, isUnsent(s.answer.errs()[0]))
		s.wire.Close()
	})
}

// lastZxidOf returns the zxid in the request of a handshake.
func lastZxidOf(t *testing.T, frame []byte) int64 {
	t.Helper()
	d := proto.NewDecoder(frame[4:])
	d.Int32()
	return d.Int64()
}

// connectFrame is zk.Conn's request of a handshake.
func connectFrame(lastZxid, id int64) []byte {
	return proto.NewEncoder().Int32(0).Int64(lastZxid).Int32(4000).Int64(id).Buffer(make([]byte, 16)).Frame()
}

// The handshake requires a server that saw all transactions in the answers to our own requests in this session.
func TestHandshakeCarriesTheLatestZxid(t *testing.T) {
	handshake := func(s *script, lastZxid, id int64) (next *script, got int64) {
		t.Helper()
		_ = s.Close()
		next = s.redial()
		sent := connectFrame(lastZxid, id)
		go next.conn(sent)
		frame, err := readWhole(next.server)
		require.NoError(t, err)
		synctest.Wait()
		require.Equal(t, connectFrame(lastZxid, id), sent, "zk.Conn's buffer is not changed")
		require.Len(t, frame, len(sent))
		return next, lastZxidOf(t, frame)
	}
	testkit.Bubble(t, func(t *testing.T) {
		s := openScript(t)
		s.ask("/1", "/2", "/3")
		for i, zxid := range []int64{50, 70, -1} {
			s.next()
			s.deliver(dataFrame(firstXid-int32(i), zxid))
		}
		synctest.Wait()
		s, got := handshake(s, 60, 7)
		require.EqualValues(t, 70, got)
		s, got = handshake(s, 80, 7)
		require.EqualValues(t, 80, got, "zk.Conn knows of a later one")
		s, got = handshake(s, 0, 0)
		require.EqualValues(t, 0, got, "a new session")
		go s.readAll()
		s.deliver(handshakeFrame(0)) // expired
		<-s.read
		s, got = handshake(s, 0, 0)
		require.EqualValues(t, 0, got)
		s.open()
		_, got = handshake(s, 5, 8)
		require.EqualValues(t, 5, got, "what an earlier session has seen does not count")
		s.wire.Close()
	})
}
