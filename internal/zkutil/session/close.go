package session

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/dial"
)

// beginClosing ends every hold and wait with ErrClosed, and refuses new calls. beginClosing is the first step
// of Close, and also runs when the user closes the zk.Conn itself, before the request to close the session is
// sent.
func (l *lifecycle) beginClosing() {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core.Phase >= core.Closing {
		return
	}
	l.endOpen()
	ended := s.actLocked(s.core.OnClose(s.clock.Now()))
	if len(l.workNames) > 0 || l.undoable > 0 { // otherwise the session ends now, and the znodes with it
		s.backgroundLocked(func(context.Context) { ended.begin() })
	}
	s.link.announceLocked()
}

// grace bounds how long a caller waits for the end of a session.
type grace struct {
	ctx       context.Context //nolint:containedctx // of Shutdown
	isDefault bool            // each wait has its own limit
}

// await waits until done is closed. The error names the bound that was reached.
func (g grace) await(done <-chan struct{}, limit time.Duration) error {
	if zkutil.IsClosed(done) {
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
		l.patience, l.endPatience = context.WithCancel(g.ctx)
		l.beginClosing()
		// Ends when all work returns. Joined below, unless the caller's bound is reached before.
		go func() {
			<-l.works.Finish()
			l.finishClosing()
			l.endPatience()
			close(l.finished)
		}()
	})
	if g.isDefault {
		l.endPatience()
	}
	if s.scope.IsOnStack() {
		return nil
	}
	if err := l.awaitWorks(g); err != nil {
		return err
	}
	if err := l.awaitFinished(g); err != nil {
		return err
	}
	left := l.left
	if g.isDefault {
		left = nil
	}
	if end := g.await(s.wire.Dialer.FinishUserCalls(), s.BeatPeriod()); end != nil {
		return zkutil.Both(left, fmt.Errorf("a dialer, or the lookup of a server's name, is still running: %w", end))
	}
	if end := g.await(s.callbacks.Finish(), s.cfg.OperationTimeout); end != nil {
		return zkutil.Both(left, fmt.Errorf("a callback is still running: %w", end))
	}
	return left
}

// awaitWorks waits until all work returns, because no other contender may lead or hold the lock while the user's
// function runs. Where a function returned and its end is being recorded, Close waits for the same time once more.
func (l *lifecycle) awaitWorks(g grace) error {
	limit := l.s.cfg.OperationTimeout
	end := g.await(l.works.Finish(), limit)
	if end != nil && g.isDefault && l.hasReturned() {
		if end = g.await(l.works.Finish(), limit); end != nil {
			end = fmt.Errorf("after %v", 2*limit)
		}
	}
	if end == nil {
		return nil
	}
	names := l.describeWorks()
	if names == "" { // all work returns at this moment
		<-l.works.Finish()
		return nil
	}
	return fmt.Errorf("%w (%s): %w; the session ends when it returns", zkutil.ErrStepDownGrace, names, end)
}

// hasReturned reports whether there is work whose function returned.
func (l *lifecycle) hasReturned() bool {
	l.s.mu.Lock()
	defer l.s.mu.Unlock()
	return l.returned > 0
}

// awaitFinished waits until the session is finished.
func (l *lifecycle) awaitFinished(g grace) error {
	end := g.await(l.finished, l.closeLimit())
	switch {
	case zkutil.IsClosed(l.finished):
		return nil
	case g.isDefault:
		return fmt.Errorf("the connection is still closing: a call to the user's net.Conn is blocked: %w", end)
	default:
		return zkutil.Both(l.describeLeft(), fmt.Errorf("the connection is still closing: %w", end))
	}
}

// closeLimit returns how long Close may take once all work returns: the wait for a connection and for
// undos, the waits of closeConn, and zk.Conn's own waits, of two seconds and one.
func (l *lifecycle) closeLimit() time.Duration {
	s := l.s
	const ofConn = 5 * time.Second
	return s.cfg.OperationTimeout + 4*s.BeatPeriod() + ofConn
}

// finishClosing is the rest of Close once all work returns.
func (l *lifecycle) finishClosing() {
	s := l.s
	s.mu.Lock()
	deadline := s.deletionDeadlineLocked(time.Now())
	s.mu.Unlock()
	l.awaitUndos(deadline)
	l.awaitConnectionToClose(deadline)
	s.mu.Lock()
	s.core.Seal()
	s.holds.young.stopLocked()
	s.mu.Unlock()
	l.endTasks()
	l.tasks.Wait()
	l.closeConn()
	l.calls.Wait()
	if !s.wire.IsSessionEnded() {
		if l.left = l.describeLeft(); l.left != nil {
			s.log.Log(slog.LevelWarn, "closed with znodes left", "err", l.left)
		}
	}
	s.callbacks.Finish()
}

// BeginUndoable is called before a write that the caller may have to undo. Close waits until end is called, for an operation
// timeout at most, because the write outlives the session.
func (s *Session) BeginUndoable() (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life.undoable++
	s.keeper.retainLocked()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.life.undoable--
		s.keeper.releaseLocked()
		s.link.announceLocked()
	}
}

// awaitUndos waits until no write may have to be undone any more.
func (l *lifecycle) awaitUndos(deadline time.Time) {
	l.s.link.awaitConditionUntil(deadline, func() bool { return l.undoable == 0 || l.isConnEnded })
}

// awaitConnectionToClose waits for a connection over which to close the session, because otherwise the znodes
// stay until the session expires. The wait ends when others may hold what was held, at deadline at
// the latest.
func (l *lifecycle) awaitConnectionToClose(deadline time.Time) {
	s := l.s
	if len(l.nodesLeft()) == 0 {
		return
	}
	s.mu.Lock()
	deadline = zkutil.Earliest(deadline, s.clock.Local(s.core.Until()))
	s.mu.Unlock()
	s.link.awaitConditionUntil(deadline, func() bool { return s.core.IsConnected || l.isConnEnded })
}

// onConnEnded is called when zk.Conn ends, by Close or by the user.
func (l *lifecycle) onConnEnded() {
	s := l.s
	l.beginClosing()
	s.mu.Lock()
	defer s.mu.Unlock()
	l.isConnEnded = true
	s.link.announceLocked()
}

// describeLeft returns an error naming the znodes that may be left, nil if none.
func (l *lifecycle) describeLeft() error {
	const shown = 10
	const why = "no server has confirmed the end of the session, which keeps them until it expires"
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

// describeWorks names the work that is still running.
func (l *lifecycle) describeWorks() string {
	s := l.s
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(l.workNames)), ", ")
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

// closeConn ends zk.Conn. closeConn first waits until no request is in flight, because zk.Conn would
// return the result of a request while still writing to it. Requests unanswered by a dead server fail when the
// socket is cut. Shutdown waits longer than that for the answers. See awaitAnswers.
func (l *lifecycle) closeConn() {
	s := l.s
	idle := make(chan struct{})
	go func() { // ends with the calls, which the steps below bring to an end; joined by the last receive
		l.calls.Wait()
		close(idle)
	}()
	if !zkutil.Within(idle, s.BeatPeriod()) && !l.awaitAnswers(idle) {
		s.wire.Disconnect()
		if !zkutil.Within(idle, s.BeatPeriod()) {
			s.wire.Close()
		}
	}
	<-idle
	if s.link.hasNeverConnected() {
		// zk.Conn.Close waits a second for the answer to its request even without a session. While looking for
		// a server, zk.Conn ends at once.
		s.wire.Close()
		limit := time.NewTimer(s.BeatPeriod())
		defer limit.Stop()
		select {
		case <-l.connEnd.inPause:
		case <-l.connEnd.done:
		case <-limit.C: // in the user's dialer, say
		}
	}
	close(l.connEnd.mayQuit)
	s.mu.Lock()
	conn := s.link.conn
	s.mu.Unlock()
	if conn != nil {
		conn.Close() // waits a second for the answer
		l.awaitAnswers(l.connEnd.done)
	}
	s.wire.Close()
	<-l.connEnd.done
}

// awaitAnswers waits for done within patience, and reports whether done is closed. Requests whose commits are slow are answered as long
// as the connection lasts, which zk.Conn gives up when it receives no bytes for two thirds of the session timeout. Without a connection,
// awaitAnswers does not wait.
func (l *lifecycle) awaitAnswers(done <-chan struct{}) bool {
	if l.s.IsConnected() {
		select {
		case <-done:
		case <-l.patience.Done():
		}
	}
	return zkutil.IsClosed(done)
}

// RoundPause is pauseToSave while a hold can be saved. Otherwise zk.Conn pauses for its own second, in which it fails the user's unsent
// requests, and finds out that the user closed it. A longer pause after refusals precedes that.
//
// Within Connect no caller has the zk.Conn yet. There the whole pause is here, because Close can end it. During Close, RoundPause holds a
// zk.Conn that was never connected until zk.Conn.Close queued its request, within a millisecond. zk.Conn answers the request at its
// own end, whereas zk.Conn.Close would wait a second for the answer if zk.Conn ended before.
func (o wireOwner) RoundPause() time.Duration {
	s := o.s
	isNew := s.link.hasNeverConnected()
	if isNew && s.life.tasksCtx.Err() != nil {
		s.life.connEnd.pauseOnce.Do(func() { close(s.life.connEnd.inPause) })
		<-s.life.connEnd.mayQuit
		time.Sleep(time.Millisecond) //nolint:forbidigo // no event reports the request
		return 0
	}
	if pause := o.pauseToSave(); pause > 0 {
		return pause
	}
	pause := max(time.Second, s.link.pauseAfterRefusals())
	if isNew && !s.gate.entry.isOpened {
		return pause
	}
	s.pause(s.life.tasksCtx, pause-time.Second)
	return 0
}

// shortestPause protects servers that refuse the client from clients with a short session timeout.
const shortestPause = 250 * time.Millisecond

// pauseToSave returns the pause between two rounds of attempts at all servers while a hold can be saved, if
// shorter than zk.Conn's own pause of one second; otherwise 0. In its own pause zk.Conn fails all unsent
// requests. Without zk.Conn's pause such requests stay queued, for T/2 at most: trust lasts no longer.
func (o wireOwner) pauseToSave() time.Duration {
	s := o.s
	s.mu.Lock()
	defer s.mu.Unlock()
	pause := max(s.core.Period()/dial.HurryDivisor, shortestPause)
	if !s.core.HasHoldToSave(s.clock.Now()) || pause >= time.Second {
		return 0
	}
	return pause
}
