package session

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/trace"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// Work is what the client runs for the user until it returns: a campaign for leadership, or the function of a Do. Close
// ends the contexts of all work, waits until the work returns, and only then ends the session. Meanwhile the
// znodes of the work stay, because no other contender may work at the same time.

// RunCampaign runs a campaign for leadership. The session stands until campaign returns. work is the
// recipe and the path, as shown in the errors of Close and Shutdown. Once Close begins to wait for the
// campaigns, RunCampaign runs nothing and reports false.
func (s *Session) RunCampaign(work string, campaign func()) bool {
	count := func(change int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.life.countWorkLocked(work, change)
	}
	count(1)
	isRunning := s.life.works.Run(func() {
		defer count(-1)
		campaign()
	})
	if !isRunning {
		count(-1)
	}
	return isRunning
}

// countWorkLocked counts the works of one recipe and path.
func (l *lifecycle) countWorkLocked(work string, change int) {
	if l.workNames[work] += change; l.workNames[work] == 0 {
		delete(l.workNames, work)
	}
}

// BeginWork registers a function of the user that the caller is about to call under the entry. Until end is called, the
// session stands, and Close ends the hold but keeps the znode. Once the session closes, BeginWork fails with ErrClosed.
//
// end begins to delete the znode if Close has kept it and no other function runs under the hold. await waits for the
// deletion until stop is closed, for an operation timeout at most.
func (e *Entry) BeginWork() (end func() (await func(stop <-chan struct{})), err error) {
	h := e.hold.ofZnode()
	s := h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.core.MayWork() || !s.life.works.Enter() {
		return nil, zkutil.ErrClosed
	}
	s.life.countWorkLocked(e.workName(), 1)
	s.keeper.retainLocked()
	h.core.BeginWork()
	return e.endWork, nil
}

// NoteReturned records that the function of a BeginWork returned, although end is not called yet. The caller still has
// something to write. Close waits an operation timeout for functions, and then another one if functions returned.
func (e *Entry) NoteReturned() {
	h := e.hold.ofZnode()
	s := h.s
	s.mu.Lock()
	defer s.mu.Unlock()
	h.returned++
	s.life.returned++
}

// endWork ends a BeginWork.
func (e *Entry) endWork() (await func(stop <-chan struct{})) {
	h := e.hold.ofZnode()
	s := h.s
	s.mu.Lock()
	var kept *removal
	if h.core.EndWork() {
		kept = h.vacateLocked()
	}
	s.life.countWorkLocked(e.workName(), -1)
	s.keeper.releaseLocked()
	hasReturned := h.returned > h.core.Works // otherwise it may be that of the work that is left
	if hasReturned {
		h.returned--
	}
	s.mu.Unlock()
	if kept != nil {
		kept.begin()
	}
	s.life.works.Leave()
	if hasReturned { // now, so that Close finds one or the other
		s.mu.Lock()
		s.life.returned--
		s.mu.Unlock()
	}
	beganAt := time.Now()
	return func(stop <-chan struct{}) {
		if kept == nil {
			return
		}
		if h.core.IsWriting {
			_ = Leaving{removal: kept, beganAt: beganAt}.AwaitAfterWork(stop)
		}
		if s.life.open.Err() != nil {
			kept.awaitWhileClosing(stop)
		}
	}
}

// LeaveWriting is Leave for the only entry of a hold, with work that has something to write at its end. One transaction sets the data of the
// znode at path, if that has the given version, and deletes the entry's znode.
//
// It is sent once, and only over a connection and while the hold stands; otherwise isSent is false, and the entry is not left. After an error
// the transaction may have taken effect, or may still do so. Then the entry's znode stays until the work ends, so that the caller can write
// again.
func (e *Entry) LeaveWriting(ctx context.Context, path string, data []byte, version int32) (isSent bool, err error) {
	h := e.hold
	s := h.s
	s.mu.Lock()
	h.endIfUntrustedLocked()
	isConnected := s.core.IsConnected && s.link.conn != nil
	stands := h.core.Cause == nil && h.limit.errorLocked() == nil
	if !isConnected || !stands {
		s.mu.Unlock()
		return false, nil
	}
	e.hasLeft = true
	h.core.BeginWriting()
	traced := e.endTracedLocked(nil)
	h.endLocked(zkutil.ErrReleased)
	delete(s.keeper.nodes, h.path)
	t := s.gate.admitLocked(1)
	s.mu.Unlock()
	c := &call{Request: wire.Request{Op: proto.OpMulti, Removes: []string{h.path}, Path: path, Data: data, Version: version}, isCleanUp: true, taker: h}
	s.gate.sendAdmitted(t, c)
	if traced != nil {
		traced.CallLeaseEnd()
	}
	_, err = c.wait(ctx)
	return true, err
}

// takeLocked takes the answer to a transaction that deletes the znode: that of LeaveWriting, whose hold has ended, or that of an Exchange.
func (h *Hold) takeLocked(c *call, a wire.Answer) {
	switch {
	case a.Err != nil || a.IsUncommitted:
	case h.core.IsWriting:
		if deleted := h.vacateLocked(); deleted != nil {
			deleted.takeLocked(c, a)
		}
	default:
		h.endLocked(zkutil.ErrNodeDeleted)
	}
}

// awaitWhileClosing waits until the znode is deleted, with its session at the latest, or until stop is closed or an operation timeout is over:
// Shutdown reports a znode that is left.
func (r *removal) awaitWhileClosing(stop <-chan struct{}) {
	s := r.s
	timer := time.NewTimer(s.cfg.OperationTimeout)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-s.life.finished:
	case <-stop:
	case <-timer.C:
	}
}

func (e *Entry) workName() string { return e.Recipe() + " " + e.UserPath() }

// Scope returns the scope of the user's functions that run under the entry.
func (e *Entry) Scope() zkutil.Scope { return e.hold.s.scope }

// Work that continues after the end of its context is reported after firstOverrun, and again every
// overrunPause.
const (
	firstOverrun = time.Second
	overrunPause = time.Minute
)

// WatchWork reports work that continues after the end of its context, until stop is called. Each time,
// WatchWork calls entry for the acquisition of the work, and logs a warning with the cause of ctx. Then WatchWork
// calls report, unless nil, with an ErrWorkGoesOn. report must not block.
//
// The goroutine starts only at the end of ctx. stop waits for the goroutine.
func WatchWork(ctx context.Context, entry func() *Entry, report func(error)) (stop func()) {
	stopped, ended := make(chan struct{}), make(chan struct{})
	unbind := context.AfterFunc(ctx, func() {
		defer close(ended)
		began := time.Now()
		timer := time.NewTimer(firstOverrun)
		defer timer.Stop()
		for {
			select {
			case <-stopped:
				return
			case <-timer.C:
			}
			err := entry().warnOfOverrun(time.Since(began), context.Cause(ctx))
			if report != nil {
				report(err)
			}
			timer.Reset(overrunPause)
		}
	})
	return func() {
		close(stopped)
		if !unbind() {
			<-ended
		}
	}
}

// warnOfOverrun logs that the work of an entry continues some time after the end of its context, and
// returns the warning as an error. Nothing is logged while a function that returned has its end written.
func (e *Entry) warnOfOverrun(overrun time.Duration, cause error) error {
	h, overrun := e.hold, overrun.Round(time.Millisecond)
	h.s.mu.Lock()
	hasReturned := h.ofZnode().returned > 0
	h.s.mu.Unlock()
	if !hasReturned {
		h.s.log.Log(slog.LevelWarn, zkutil.ErrWorkGoesOn.Error(),
			"path", h.userPath, "token", h.token, "id", h.id(), "for", overrun, "cause", cause)
	}
	return fmt.Errorf("%w, for %v", zkutil.ErrWorkGoesOn, overrun)
}

// Succeed ends an acquisition with entries. LeaseEnd follows when the last entry ends, and can't come
// before AcquireEnd, because the entries are bound only afterwards.
func Succeed(a *trace.Acquisition, isReentry bool, entries ...*Entry) {
	if a == nil {
		return
	}
	a.Succeed(isReentry, entries[0].Token(), len(entries))
	if bindEntries(a, entries) {
		a.CallLeaseEnd()
	}
}

// bindEntries binds the entries to their acquisition. It reports whether all ended already.
func bindEntries(a *trace.Acquisition, entries []*Entry) (isOver bool) {
	s := entries[0].hold.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		if cause := e.hold.endedLocked(); e.hasLeft || cause != nil {
			if e.hasLeft {
				cause = nil
			}
			isOver = a.EndLease(cause)
		} else {
			e.acquisition = a
		}
	}
	return isOver
}
