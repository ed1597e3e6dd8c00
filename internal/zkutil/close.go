package zkutil

import (
	"errors"
	"fmt"
	"time"
)

// Close ends every hold and wait with ErrClosed, removes what they left in
// ZooKeeper, and joins every goroutine. On an own connection closing the session
// removes all znodes at once; on an adopted one each is deleted, for at most an
// operation timeout, and the connection stays open. It is idempotent, and waits again
// when called again. Inside a function of the user that this session runs, it only asks for
// all that. It returns within a bounded time, whatever the user's code does; its error says
// what is still running.
func (s *Session) Close() error {
	s.closing.Do(func() {
		s.abort()
		go func() { // ends when nobody leads any more; joined below
			<-s.campaigns.finish()
			s.end()
			close(s.over)
		}()
	})
	if s.scope.isOnStack() {
		return nil
	}
	if !within(s.campaigns.finish(), s.cfg.OperationTimeout) {
		// Nobody else may lead while the user's function still does.
		return fmt.Errorf("close: %w after %v; the session ends when it returns", ErrStepDownGrace, s.cfg.OperationTimeout)
	}
	if !within(s.over, s.closeLimit()) {
		return errors.New("close: the connection is still being closed: what the dialer returned does not return from a call")
	}
	if !within(s.foreign.calls.finish(), s.period()) {
		return errors.New("close: a dialer or a host provider is still running")
	}
	if !within(s.callbacks.finish(), s.cfg.OperationTimeout) {
		return errors.New("close: a callback is still running")
	}
	return nil
}

// closeLimit is how long Close may take once no function of the user's runs any more: the
// deletions on an adopted connection, what hangUp waits for, and zk.Conn's own waits, of two
// seconds and one.
func (s *Session) closeLimit() time.Duration {
	const ofConn = 5 * time.Second
	return s.cfg.OperationTimeout + 4*s.period() + ofConn
}

// abort ends every hold and wait with ErrClosed, and refuses new calls. It is the
// first step of Close, and what happens when somebody closes the zk.Conn itself.
func (s *Session) abort() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	s.shut()
	for _, hold := range s.holds {
		hold.endLocked(ErrClosed)
	}
	s.enterState(Closed)
	s.announce()
}

// within reports whether done is closed within limit.
func within(done <-chan struct{}, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// end is what remains of Close when nobody leads any more.
func (s *Session) end() {
	if s.wire == nil { // the znodes outlive us unless we delete them
		s.drain(s.cfg.OperationTimeout, func() bool { return s.interest == 0 })
	}
	s.mu.Lock()
	s.sealed = true
	s.mu.Unlock()
	s.cancel()
	s.tasks.Wait()
	if s.wire != nil {
		s.hangUp()
	}
	s.calls.Wait()
	s.callbacks.finish()
}

func (s *Session) neverConnected() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch == 0
}

// hangUp ends the owned zk.Conn. No call may be in flight then: zk.Conn would
// return its result while still writing to it. Calls that a dead server does not
// answer are failed by cutting the socket.
func (s *Session) hangUp() {
	idle := make(chan struct{})
	go func() { // ends with the calls, which the steps below see to; joined by the last receive
		s.calls.Wait()
		close(idle)
	}()
	if !within(idle, s.period()) {
		s.wire.cut()
		if !within(idle, s.period()) {
			s.wire.shut()
		}
	}
	<-idle
	if s.neverConnected() {
		// There is no session to close. zk.Conn.Close waits a second for an answer all
		// the same, unless zk.Conn is looking for a server: there it ends at once.
		s.wire.shut()
		limit := time.NewTimer(s.period())
		defer limit.Stop()
		select {
		case <-s.inPause:
		case <-s.ended:
		case <-limit.C: // in the user's dialer, say
		}
	}
	close(s.quitting)
	if conn := s.Conn(); conn != nil {
		conn.Close()
	}
	s.wire.shut()
	<-s.ended
}
