package session

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// phase is how far a session has progressed. A phase only grows.
//
//	running   everything is allowed
//	   │ Close, Shutdown, or the user closes the zk.Conn itself: every hold and wait ends with ErrClosed
//	   ▼
//	closing   no calls except clean-ups; campaigns step down; deletions go on
//	   │ the campaigns have returned; on an adopted connection, the deletions have ended as well,
//	   │ or the connection has
//	   ▼
//	sealed    no new tasks; the tasks are asked to end
//	   │ tasks and calls have returned; an own zk.Conn has ended
//	   ▼
//	finished  nothing is left but callbacks of the user, for which Close waits a while
//
// finished is a channel, because callers wait for it.
type phase int

const (
	running phase = iota
	closing
	sealed
)

// lifecycle ends a session in the right order.
type lifecycle struct {
	s *Session

	begin    sync.Once       // of Close
	open     context.Context // ends when the phase is closing
	endOpen  func()
	tasksCtx context.Context // of the tasks; ends when the phase is sealed
	endTasks context.CancelFunc
	left     error         // the znodes left by the closed session, as an error; set before finished is closed
	settled  chan struct{} // closed when Close need not wait any more: at the latest when the session is finished
	finished chan struct{} // closed when the session is finished

	campaigns zkutil.Group   // of leaders; the session stands until they have returned
	tasks     sync.WaitGroup // the session's own goroutines
	calls     sync.WaitGroup // requests in zk.Conn
	hangUp    hangUp         // of an own zk.Conn
	callbacks zkutil.Group   // functions of the user

	// Guarded by Session.mu.
	phase       phase
	works       map[string]int // number of running campaigns, by recipe and path
	unsettled   int            // number of writes that may have to be undone: see Persistent.Unsettled
	isConnEnded bool           // zk.Conn has ended
}

func newLifecycle() lifecycle {
	tasksCtx, endTasks := context.WithCancel(context.Background()) // the session's own; Close ends it
	open, endOpen := context.WithCancelCause(tasksCtx)
	return lifecycle{
		open: open, endOpen: func() { endOpen(zkutil.ErrShut) },
		tasksCtx: tasksCtx, endTasks: endTasks, settled: make(chan struct{}), finished: make(chan struct{}),
		works: map[string]int{}, hangUp: newHangUp(),
	}
}

func (l *lifecycle) isClosingLocked() bool { return l.phase >= closing }
func (l *lifecycle) isSealedLocked() bool  { return l.phase >= sealed }

// beginClosing ends every hold and wait with ErrClosed, and refuses new calls. beginClosing is the first step
// of Close, and also runs when the user closes the zk.Conn itself: on an own connection before the request to
// close the session is sent, on an adopted connection when zk.Conn has ended.
func (l *lifecycle) beginClosing() {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.isClosingLocked() {
		return
	}
	l.phase = closing
	l.endOpen()
	s.holds.endAllLocked(zkutil.ErrClosed)
	s.link.enterStateLocked(Closed, nil)
	s.link.announceLocked()
}

// grace bounds how long a caller waits for the end of a session.
type grace struct {
	ctx       context.Context //nolint:containedctx // of Shutdown
	isDefault bool            // each wait has its own limit
}

// await waits until done is closed. The error names the bound that was reached.
func (g grace) await(done <-chan struct{}, limit time.Duration) error {
	if isDone(done) {
		return nil
	}
	if g.isDefault {
		if zkutil.Within(done, limit) {
			return nil
		}
		return fmt.Errorf("after %v", limit)
	}
	select {
	case <-done:
		return nil
	case <-g.ctx.Done():
		return zkutil.EndOf(g.ctx)
	}
}

func (l *lifecycle) shutdown(g grace) error {
	s := l.s
	l.begin.Do(func() {
		l.beginClosing()
		// Ends when nobody leads any more and, on an adopted connection, no deletion could still succeed. Joined below, unless
		// the caller's bound is reached before.
		go func() {
			<-l.campaigns.Finish()
			l.finishClosing()
			close(l.finished)
			if !isDone(l.settled) {
				close(l.settled)
			}
		}()
	})
	if s.scope.IsOnStack() {
		return nil
	}
	if end := g.await(l.campaigns.Finish(), s.cfg.OperationTimeout); end != nil {
		// Nobody else may lead while the user's function still does.
		return fmt.Errorf("%w (%s): %w; the session ends when it returns", zkutil.ErrStepDownGrace, l.describeWorks(), end)
	}
	if err := l.awaitFinished(g); err != nil {
		return err
	}
	left := l.left
	if g.isDefault {
		left = nil
	}
	if s.wire != nil {
		if end := g.await(s.wire.Dialer.FinishUserCalls(), s.keeper.beatPeriod()); end != nil {
			return zkutil.Both(left, fmt.Errorf("a dialer or a host provider, or the lookup of a server's name, is still running: %w", end))
		}
	}
	if end := g.await(l.callbacks.Finish(), s.cfg.OperationTimeout); end != nil {
		return zkutil.Both(left, fmt.Errorf("a callback is still running: %w", end))
	}
	return left
}

// awaitFinished waits until the session is finished, or until nobody needs to wait for the deletions on an
// adopted connection.
func (l *lifecycle) awaitFinished(g grace) error {
	end := g.await(l.settled, l.closeLimit())
	switch {
	case isDone(l.finished):
		return nil
	case l.s.wire == nil:
		return zkutil.Both(l.leftOnAdopted(), end)
	case end == nil: // the session finishes at this moment
		<-l.finished
		return nil
	case g.isDefault:
		return fmt.Errorf("the connection is still being closed: what the dialer returned does not return from a call: %w", end)
	default:
		return zkutil.Both(l.leftOnOwn(), fmt.Errorf("the connection is still being closed: %w", end))
	}
}

// closeLimit returns how long Close may take once the campaigns have returned: the deletions on an
// adopted connection, the waits of closeConn, and zk.Conn's own waits, of two seconds and one.
func (l *lifecycle) closeLimit() time.Duration {
	s := l.s
	const ofConn = 5 * time.Second
	return s.cfg.OperationTimeout + 4*s.keeper.beatPeriod() + ofConn
}

// finishClosing is the rest of Close once nobody leads any more.
func (l *lifecycle) finishClosing() {
	s := l.s
	if s.wire == nil {
		l.awaitDeletionsOnAdopted()
	} else {
		deadline := s.silence.deadline(time.Now())
		l.awaitUndos(deadline)
		l.awaitConnectionToClose(deadline)
	}
	s.mu.Lock()
	l.phase = sealed
	s.holds.young.stopLocked()
	s.mu.Unlock()
	l.endTasks()
	l.tasks.Wait()
	if s.wire != nil {
		l.closeConn()
	}
	l.calls.Wait()
	if s.wire != nil && !s.wire.IsSessionEnded() {
		if l.left = l.leftOnOwn(); l.left != nil {
			s.Log(slog.LevelWarn, "closed with znodes left", "err", l.left)
		}
	}
	l.callbacks.Finish()
}

// awaitDeletionsOnAdopted waits until all znodes are deleted. Otherwise they outlive the Session, because the
// ZooKeeper session lives on with the connection. After an operation timeout, Close returns with an error. The
// deletions go on until confirmed, or until the connection ends, and the session with it.
func (l *lifecycle) awaitDeletionsOnAdopted() {
	s := l.s
	limit := time.NewTimer(time.Until(s.silence.deadline(time.Now())))
	defer limit.Stop()
	isOver := func() bool { return s.keeper.users == 0 || l.isConnEnded }
	if s.link.awaitConditionUntil(limit.C, isOver) {
		return
	}
	left := l.leftOnAdopted()
	if left == nil {
		return // zk.Conn has yet to answer requests that leave nothing behind
	}
	s.Log(slog.LevelWarn, "closed with znodes left: their deletion goes on as long as the adopted connection does", "err", left)
	close(l.settled)
	s.link.awaitConditionUntil(nil, isOver)
	s.Log(slog.LevelInfo, "the deletions after the close have ended", "left", len(l.nodesLeft()))
}

// awaitUndos waits until the writes that may have to be undone are settled, because they outlive the session.
func (l *lifecycle) awaitUndos(deadline time.Time) {
	limit := time.NewTimer(time.Until(deadline))
	defer limit.Stop()
	l.s.link.awaitConditionUntil(limit.C, func() bool { return l.unsettled == 0 || l.isConnEnded })
}

// awaitConnectionToClose waits for a connection over which to close the session, because otherwise the znodes
// stay until the session expires. The wait ends when others may have been granted what was held, at deadline at
// the latest.
func (l *lifecycle) awaitConnectionToClose(deadline time.Time) {
	s := l.s
	if len(l.nodesLeft()) == 0 {
		return
	}
	s.mu.Lock()
	deadline = zkutil.Earliest(deadline, s.clock.Local(s.ledger.Until()))
	s.mu.Unlock()
	limit := time.NewTimer(time.Until(deadline))
	defer limit.Stop()
	s.link.awaitConditionUntil(limit.C, func() bool { return s.link.isConnected || l.isConnEnded })
}

// onConnEnded is called when zk.Conn has ended, by Close or by the user.
func (l *lifecycle) onConnEnded() {
	s := l.s
	l.beginClosing()
	s.mu.Lock()
	defer s.mu.Unlock()
	l.isConnEnded = true
	s.link.announceLocked()
}

// leftOnOwn returns an error naming the znodes left after the end of an own connection, nil if none.
func (l *lifecycle) leftOnOwn() error {
	return l.describeLeft("no server has confirmed the end of the session, which keeps them until it expires")
}

// leftOnAdopted returns an error naming the znodes left by Close for the time being, nil if none.
func (l *lifecycle) leftOnAdopted() error {
	return l.describeLeft("deletion goes on; closing the adopted connection ends it, and removes them")
}

// describeLeft returns an error naming the znodes that may be left, nil if none.
func (l *lifecycle) describeLeft(why string) error {
	const shown = 10
	paths := l.nodesLeft()
	if len(paths) == 0 {
		return nil
	}
	text := strings.Join(paths[:min(shown, len(paths))], ", ")
	if more := len(paths) - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Errorf("%w: %s (%s)", zkutil.ErrNodeNotDeleted, text, why)
}

// describeWorks names the campaigns that have not returned.
func (l *lifecycle) describeWorks() string {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(l.works)), ", ")
}

// nodesLeft returns the paths of the znodes that may exist, sorted. A znode without an answer to its create has
// no name yet.
func (l *lifecycle) nodesLeft() []string {
	paths, dirs := l.s.budget.Nodes()
	for _, dir := range dirs {
		paths = append(paths, zkutil.Join(dir, zkutil.Protection)+"…")
	}
	slices.Sort(paths)
	return paths
}

// hangUp coordinates the end of an own zk.Conn, which is slow without a session: see wireOwner.RoundPause.
type hangUp struct {
	connDone  chan struct{} // closed when the own zk.Conn has ended
	pauseOnce sync.Once
	inPause   chan struct{} // closed when zk.Conn is held in RoundPause
	mayQuit   chan struct{} // closed when zk.Conn.Close is about to be called
}

func newHangUp() hangUp {
	return hangUp{connDone: make(chan struct{}), inPause: make(chan struct{}), mayQuit: make(chan struct{})}
}

// closeConn ends an own zk.Conn. closeConn first waits until no request is in flight, because zk.Conn would
// return the result of a request while still writing to it. Requests unanswered by a dead server fail when the
// socket is cut.
func (l *lifecycle) closeConn() {
	s := l.s
	idle := make(chan struct{})
	go func() { // ends with the calls, which the steps below bring to an end; joined by the last receive
		l.calls.Wait()
		close(idle)
	}()
	if !zkutil.Within(idle, s.keeper.beatPeriod()) {
		s.wire.Disconnect()
		if !zkutil.Within(idle, s.keeper.beatPeriod()) {
			s.wire.Close()
		}
	}
	<-idle
	if s.link.hasNeverConnected() {
		// zk.Conn.Close waits a second for the answer to its request even without a session. While looking for
		// a server, zk.Conn ends at once.
		s.wire.Close()
		limit := time.NewTimer(s.keeper.beatPeriod())
		defer limit.Stop()
		select {
		case <-l.hangUp.inPause:
		case <-l.hangUp.connDone:
		case <-limit.C: // in the user's dialer, say
		}
	}
	close(l.hangUp.mayQuit)
	if conn := s.Conn(); conn != nil {
		conn.Close()
	}
	s.wire.Close()
	<-l.hangUp.connDone
}

// RoundPause is pauseToSave while a hold can be saved. Otherwise zk.Conn pauses for its own second, in which it fails the user's unsent
// requests, and finds out that the user has closed it; a longer pause after refusals comes before.
//
// Within Connect nobody has the zk.Conn yet. There the whole pause is here, because Close can end it. During Close, RoundPause holds a
// zk.Conn that was never connected until zk.Conn.Close has queued its request, within a millisecond. zk.Conn answers the request at its
// own end, whereas zk.Conn.Close would wait a second for the answer if zk.Conn had ended before.
func (o wireOwner) RoundPause() time.Duration {
	s := o.s
	isNew := s.link.hasNeverConnected()
	if isNew && s.life.tasksCtx.Err() != nil {
		s.life.hangUp.pauseOnce.Do(func() { close(s.life.hangUp.inPause) })
		<-s.life.hangUp.mayQuit
		time.Sleep(time.Millisecond) //nolint:forbidigo // nothing tells of the request
		return 0
	}
	if pause := o.pauseToSave(); pause > 0 {
		return pause
	}
	pause := max(time.Second, s.link.pauseAfterRefusals())
	if isNew && !s.gate.isOpened() {
		return pause
	}
	s.pause(s.life.tasksCtx, pause-time.Second)
	return 0
}
