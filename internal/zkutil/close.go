package zkutil

import (
	"errors"
	"time"
)

// Close ends every hold and wait with ErrClosed, removes what they left in
// ZooKeeper, and joins every goroutine. On an own connection closing the session
// removes all znodes at once; on an adopted one each is deleted, for at most an
// operation timeout, and the connection stays open. It is idempotent.
func (s *Session) Close() error {
	s.closing.Do(func() { s.result = s.close() })
	return s.result
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
	for hold := range s.holds {
		hold.endLocked(ErrClosed)
	}
	s.enterState(Closed)
	s.announce()
}

func (s *Session) close() error {
	s.abort()
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
	if !s.callbacks.wait(s.cfg.OperationTimeout) {
		return errors.New("close: a callback is still running")
	}
	return nil
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
	answered := func() bool {
		limit := time.NewTimer(s.patience())
		defer limit.Stop()
		select {
		case <-idle:
			return true
		case <-limit.C:
			return false
		}
	}
	if !answered() {
		s.wire.cut()
		if !answered() {
			s.wire.shut()
		}
	}
	<-idle
	if s.neverConnected() {
		// There is no session to close. zk.Conn.Close waits a second for an answer all
		// the same, unless zk.Conn is looking for a server: there it ends at once.
		s.wire.shut()
		limit := time.NewTimer(s.patience())
		defer limit.Stop()
		select {
		case <-s.wire.parked:
		case <-s.ended:
		case <-limit.C: // in the user's dialer, say
		}
	}
	if conn := s.Conn(); conn != nil {
		conn.Close()
	}
	s.wire.shut()
	<-s.ended
}
