package session

import (
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// hangUp coordinates the end of an own zk.Conn, which is slow if zk.Conn has no session: see
// roundPauseUntilClose.
type hangUp struct {
	connDone  chan struct{} // closed when the own zk.Conn has ended
	pauseOnce sync.Once
	inPause   chan struct{} // closed when zk.Conn is held in roundPauseUntilClose
	mayQuit   chan struct{} // closed when zk.Conn.Close is about to be called
}

func newHangUp() hangUp {
	return hangUp{connDone: make(chan struct{}), inPause: make(chan struct{}), mayQuit: make(chan struct{})}
}

func (s *Session) hasNeverConnected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link.epoch == 0
}

// closeConn ends an own zk.Conn. It first waits until no request is in flight, because zk.Conn would
// return the result of one while still writing to it. Requests that a dead server does not answer
// fail when the socket is cut.
func (s *Session) closeConn() {
	idle := make(chan struct{})
	go func() { // ends with the calls, which the steps below see to; joined by the last receive
		s.life.calls.Wait()
		close(idle)
	}()
	if !zkutil.Within(idle, s.beatPeriod()) {
		s.wire.Disconnect()
		if !zkutil.Within(idle, s.beatPeriod()) {
			s.wire.Close()
		}
	}
	<-idle
	if s.hasNeverConnected() {
		// zk.Conn.Close waits a second for the answer to its request even without a session. While
		// zk.Conn looks for a server it ends at once.
		s.wire.Close()
		limit := time.NewTimer(s.beatPeriod())
		defer limit.Stop()
		select {
		case <-s.hangUp.inPause:
		case <-s.hangUp.connDone:
		case <-limit.C: // in the user's dialer, say
		}
	}
	close(s.hangUp.mayQuit)
	if conn := s.Conn(); conn != nil {
		conn.Close()
	}
	s.wire.Close()
	<-s.hangUp.connDone
}

// roundPauseUntilClose is roundPause after the first handshake. Before it, the pause is one second, as
// zk.Conn's own, and Close can end it. In Close it holds zk.Conn until zk.Conn.Close has queued its request, in a
// millisecond at most. zk.Conn answers that request when it ends, whereas zk.Conn.Close would wait a
// second for the answer if zk.Conn had ended before.
func (s *Session) roundPauseUntilClose() time.Duration {
	if !s.hasNeverConnected() {
		return s.roundPause()
	}
	if s.life.tasksCtx.Err() == nil {
		return time.Second
	}
	s.hangUp.pauseOnce.Do(func() { close(s.hangUp.inPause) })
	<-s.hangUp.mayQuit
	time.Sleep(time.Millisecond) //nolint:forbidigo // nothing tells of the request
	return 0
}
