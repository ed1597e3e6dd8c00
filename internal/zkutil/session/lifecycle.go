package session

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// phase is how far a session has come. It only grows.
//
//	running   everything is allowed
//	   │ Close, or the end of an adopted zk.Conn: every hold and wait ends with ErrClosed
//	   ▼
//	closing   no calls but those that clean up; campaigns step down; deletions go on
//	   │ the campaigns have returned; on an adopted connection, the deletions have ended as well
//	   ▼
//	sealed    no new tasks; the tasks are asked to end
//	   │ tasks and calls have returned; an own zk.Conn has ended
//	   ▼
//	finished  nothing is left but callbacks of the user, for which Close waits a while
//
// finished is a channel, because it is waited for.
type phase int

const (
	running phase = iota
	closing
	sealed
)

// lifecycle ends a session in the right order.
type lifecycle struct {
	begin    sync.Once       // of Close
	open     context.Context // ends when the phase is closing
	endOpen  func()
	tasksCtx context.Context // of the tasks; ends when the phase is sealed
	endTasks context.CancelFunc
	finished chan struct{} // closed when the session is finished

	campaigns zkutil.Group   // of leaders; the session stands until they have returned
	tasks     sync.WaitGroup // our own goroutines
	calls     sync.WaitGroup // requests in zk.Conn
	callbacks zkutil.Group   // functions of the user

	phase phase // guarded by Session.mu
}

func newLifecycle() lifecycle {
	tasksCtx, endTasks := context.WithCancel(context.Background()) // the session's own; Close ends it
	open, endOpen := context.WithCancelCause(tasksCtx)
	return lifecycle{
		open: open, endOpen: func() { endOpen(zkutil.ErrShut) },
		tasksCtx: tasksCtx, endTasks: endTasks, finished: make(chan struct{}),
	}
}

func (l *lifecycle) isClosingLocked() bool { return l.phase >= closing }
func (l *lifecycle) isSealedLocked() bool  { return l.phase >= sealed }

// Close ends every hold and wait with ErrClosed, removes what they left in
// ZooKeeper, and joins every goroutine. On an own connection closing the session
// removes all znodes at once; on an adopted one each is deleted, for at most an
// operation timeout, and the connection stays open. It is idempotent, and waits again
// when called again. Inside a function of the user that this session runs, it only asks for
// all that. It returns within a bounded time, whatever the user's code does; its error says
// what is still running.
func (s *Session) Close() error {
	s.life.begin.Do(func() {
		s.beginClosing()
		go func() { // ends when nobody leads any more; joined below
			<-s.life.campaigns.Finish()
			s.finishClosing()
			close(s.life.finished)
		}()
	})
	if s.scope.IsOnStack() {
		return nil
	}
	if !zkutil.Within(s.life.campaigns.Finish(), s.cfg.OperationTimeout) {
		// Nobody else may lead while the user's function still does.
		return fmt.Errorf("close: %w after %v; the session ends when it returns", zkutil.ErrStepDownGrace, s.cfg.OperationTimeout)
	}
	if !zkutil.Within(s.life.finished, s.closeLimit()) {
		return errors.New("close: the connection is still being closed: what the dialer returned does not return from a call")
	}
	if s.wire != nil && !zkutil.Within(s.wire.FinishUserCalls(), s.beatPeriod()) {
		return errors.New("close: a dialer or a host provider is still running")
	}
	if !zkutil.Within(s.life.callbacks.Finish(), s.cfg.OperationTimeout) {
		return errors.New("close: a callback is still running")
	}
	return nil
}

// closeLimit is how long Close may take once no function of the user's runs any more: the
// deletions on an adopted connection, what hangUp waits for, and zk.Conn's own waits, of two
// seconds and one.
func (s *Session) closeLimit() time.Duration {
	const ofConn = 5 * time.Second
	return s.cfg.OperationTimeout + 4*s.beatPeriod() + ofConn
}

// beginClosing ends every hold and wait with ErrClosed, and refuses new calls. It is the
// first step of Close, and what happens when somebody closes the zk.Conn itself.
func (s *Session) beginClosing() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.life.isClosingLocked() {
		return
	}
	s.life.phase = closing
	s.life.endOpen()
	s.endHoldsLocked(zkutil.ErrClosed)
	s.enterStateLocked(Closed, nil)
	s.announceLocked()
}

// finishClosing is what remains of Close when nobody leads any more.
func (s *Session) finishClosing() {
	if s.wire == nil { // the znodes outlive us unless we delete them
		s.awaitConditionWithin(s.cfg.OperationTimeout, func() bool { return s.live.users == 0 })
	}
	s.mu.Lock()
	s.life.phase = sealed
	s.newHolds.stopLocked()
	s.mu.Unlock()
	s.life.endTasks()
	s.life.tasks.Wait()
	if s.wire != nil {
		s.closeConn()
	}
	s.life.calls.Wait()
	s.life.callbacks.Finish()
}
