// Package guard runs a command under a lease: the command's group never outlives the lease.
//
// Until the lease is trusted without another answer of the servers is known to this process and to the
// watchdog. The group gets SIGTERM a grace before that moment, and SIGKILL at it. The next contender is
// granted later than that: see docs/evidence/trust-derivation.md.
package guard

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/boottime"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/child"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Config is how to guard a command.
type Config struct {
	Lease          *recipes.Lease
	SessionTimeout func() time.Duration // the granted one, now
	Grace          time.Duration        // between SIGTERM and SIGKILL, at most a sixth of the session timeout
	IsGraceChosen  bool                 // the user has to learn that the grace was cut
	Signals        *Signals
	Say            func(format string, args ...any) // must not block
}

// Result is how it ended.
type Result struct {
	Status      syscall.WaitStatus // of the command
	IsLost      bool               // the lease was lost before all of the group had ended
	IsRevoked   bool               // a peer has asked for the lease
	WasToldToGo bool               // a signal that ends programs was passed on
}

// guard is the state of Run. All of it belongs to one goroutine.
type guard struct {
	Config

	child     *child.Child
	result    Result
	until     boottime.Time // trusted until; the last value while the lease stood
	killAt    boottime.Time // 0: not decided
	hasExited bool          // the command; others of its group may live
	isKilled  bool
	isPausing bool           // this process is to stop when the command has
	stopMates syscall.Signal // others of this process's group have not got the stop signal; 0: they have

	hasProceeded  bool // after a stop of this process, whose SIGCONT is still to come
	pauseAt       boottime.Time
	isSilent      bool // the lease was lost because the servers are
	saidGrace     bool
	saidToLeavers bool            // SIGTERM was sent to those who have left the group
	dogEnded      <-chan struct{} // nil once no watchdog follows
	ranAt         boottime.Time   // the latest moment at which this process is known to have run
	stall         stall
}

// Run starts a command and returns when nobody of its group lives, and after a loss or a revocation nobody
// who has left it either. Call it from the main thread, with a lease that is held. It does not release the
// lease. An error means that the command was not started.
func Run(cfg Config, cmd child.Command) (Result, error) {
	g := &guard{Config: cfg, until: boottime.Until(cfg.Lease.TrustedUntil()), ranAt: boottime.Now()}
	if boottime.Now() >= g.until-boottime.Time(g.grace()) { // also for a lease that has ended
		cfg.Say("lock lost before the command was started: %s: %s", cfg.Lease.Path(), whyEnded(cfg.Lease))
		return Result{IsLost: true}, nil
	}
	var err error
	if g.child, err = child.Start(cmd, g.until); err != nil {
		return Result{}, err
	}
	g.dogEnded = g.child.Watchdog.Ended()
	for !g.isOver() {
		g.look()
		g.await()
	}
	g.result.Status = g.child.Finish()
	if !g.result.IsLost && g.child.Watchdog.HasKilled() { // in the moment in which it was told of more trust
		g.sayLost(whySilent)
	}
	return g.result, nil
}

// isOver reports whether the command and what has to end with it have ended. Then it also decides whether
// the lease was held until now.
func (g *guard) isOver() bool {
	if !g.hasExited || g.child.IsGroupAlive() {
		return false
	}
	if !g.result.IsLost && (g.Lease.Context().Err() != nil || boottime.Now() >= g.until) {
		g.lookAtLease()
	}
	return g.isKilled || !g.endsLeavers() || !g.child.HasLeavers()
}

// endsLeavers reports whether the processes that have left the group have to end, too: the lease was taken
// away or asked for. They are left alone when the command has ended by itself.
func (g *guard) endsLeavers() bool { return g.result.IsLost || g.result.IsRevoked }

// grace is the grace within a sixth of the session timeout. The lease is trusted for half of the timeout or more
// after the servers fall silent, so a command gets SIGTERM after a third of it at the earliest.
func (g *guard) grace() time.Duration {
	limit := g.SessionTimeout() / 6
	if g.Grace <= limit {
		return g.Grace
	}
	if g.IsGraceChosen && !g.saidGrace {
		g.saidGrace = true
		g.Say("the grace of %v is cut to %v, a sixth of the granted session timeout", g.Grace, limit.Round(time.Millisecond))
	}
	return limit
}

// look does what is due now.
func (g *guard) look() {
	g.child.Watchdog.KillIfStopped()
	g.child.ReapOrphans()
	g.lookAtLease()
	now := boottime.Now()
	if g.hasExited && g.killAt == 0 { // the rest of the group has to go before the lock does
		g.terminate(now.Add(g.grace()))
	}
	if !g.result.IsLost && !g.isKilled && g.isToPause(now) {
		g.pause()
	}
	if g.killAt != 0 && now >= g.killAt && !g.isKilled {
		g.kill()
	}
}

// lookAtLease notices a loss. After one by silence it also notices that the lease is trusted for less long
// than was known when SIGTERM was sent, or has ended.
func (g *guard) lookAtLease() {
	lease := g.Lease
	if g.result.IsLost {
		if until := boottime.Until(lease.TrustedUntil()); g.isSilent && until < g.killAt {
			g.terminate(until)
		}
		return
	}
	wasHeld := lease.Context().Err() == nil
	if now := boottime.Now(); wasHeld && now >= g.until { // the watchdog kills at that, also if an answer from before renews the trust
		g.lose(whySilent, now)
		return
	}
	until, isHeld := trustOf(lease)
	hasRunOut := wasHeld && !isHeld && errors.Is(context.Cause(lease.Context()), recipes.ErrSessionLost) // just now: its trust is over
	if isHeld || hasRunOut {
		g.until = until
		if err := g.child.Watchdog.Until(g.until); err != nil {
			g.lose("the watchdog can't be told: "+err.Error(), boottime.Now())
			return
		}
		if boottime.Now() >= g.until-boottime.Time(g.grace()) {
			g.isSilent = true
			g.lose(whySilent, g.until)
		}
		return
	}
	now, cause := boottime.Now(), whyEnded(lease)
	if now >= g.until {
		g.lose(cause, now)
		return
	}
	// Somebody else has deleted the znode or ended the session, so another may hold the lock by now. The
	// fencing token decides.
	g.lose(cause, min(g.until, now.Add(g.grace())))
}

// trustOf returns until when a lease is trusted, and whether it is held. The trust is read first, because that of a lease which has
// ended is over: it would look as if the servers were silent.
func trustOf(lease *recipes.Lease) (until boottime.Time, isHeld bool) {
	until = boottime.Until(lease.TrustedUntil())
	return until, lease.Context().Err() == nil
}

// lose ends the command because the lease is lost, or because its trust is about to end. Why is the reason if
// this process has been running.
func (g *guard) lose(why string, killAt boottime.Time) {
	g.sayLost(why)
	g.terminate(killAt)
}

func (g *guard) sayLost(why string) {
	g.result.IsLost = true
	what := "lost"
	if g.isSilent && boottime.Now() < g.until {
		what = "given up"
	}
	g.Say("lock %s: %s: %s", what, g.Lease.Path(), g.reason(why))
}

// terminate sends SIGTERM, unless it was sent before, and SIGKILL follows at killAt at the latest.
func (g *guard) terminate(killAt boottime.Time) {
	isFirst := g.killAt == 0
	if isFirst || killAt < g.killAt {
		g.killAt = killAt
	}
	if isFirst {
		g.child.Signal(syscall.SIGTERM)
	}
	if g.endsLeavers() && !g.saidToLeavers {
		g.saidToLeavers, g.isKilled = true, false
		g.child.SignalLeavers(syscall.SIGTERM)
	}
	if g.result.IsLost && g.child.IsStopped() {
		g.kill() // it is not continued without the lock
	}
	if g.result.IsLost {
		_ = g.child.Watchdog.Until(g.killAt) // this process kills too
	}
}

// kill kills the group, and those who have left it if they have to end as well.
func (g *guard) kill() {
	g.isKilled = true
	if g.endsLeavers() {
		g.child.Kill()
	} else {
		g.child.KillGroup()
	}
}

// await waits until something happens or it is time to look again.
func (g *guard) await() {
	g.noteRun(0)
	pause := g.pauseToLook()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	leaseDone, revoked := g.Lease.Context().Done(), g.Lease.Revoked()
	if g.result.IsLost {
		leaseDone, revoked = nil, nil
	}
	if g.result.IsRevoked {
		revoked = nil
	}
	react := func() {}
	select {
	case <-timer.C:
	case <-leaseDone:
	case <-revoked:
		react = g.onRevoked
	case event := <-g.child.Events:
		react = func() { g.onChild(event) }
	case s := <-g.Signals.c:
		react = func() { g.onSignal(s.(syscall.Signal)) } // on Linux it is one
	case <-g.dogEnded:
		react = g.onWatchdogEnded
	}
	g.noteRun(pause)
	react()
}

func (g *guard) onRevoked() {
	g.result.IsRevoked = true
	g.Say("asked to release %s", g.Lease.Path())
	g.terminate(boottime.Now().Add(g.grace()))
}

// pauseToLook is the time until look has to be called again at the latest.
func (g *guard) pauseToLook() time.Duration {
	const soon = 10 * time.Millisecond
	if g.hasExited || g.isPausing || g.isKilled {
		return soon
	}
	now := boottime.Now()
	pause := max(soon, min(time.Second, g.SessionTimeout()/48)) // the watchdog gets news of the trust
	if !g.result.IsLost {
		pause = min(pause, (g.until - boottime.Time(g.grace())).Sub(now))
	}
	if g.killAt != 0 {
		pause = min(pause, g.killAt.Sub(now))
	}
	return max(pause, 0)
}

// onWatchdogEnded starts another watchdog, unless the first one has killed the group.
func (g *guard) onWatchdogEnded() {
	g.dogEnded = nil
	if g.child.Watchdog.HasKilled() {
		if !g.result.IsLost {
			g.lose("the watchdog has killed the command, because this process got no processor", boottime.Now())
		}
		g.kill()
		return
	}
	if err := g.child.Watchdog.Restart(); err != nil {
		g.lose("nothing guards the command: "+err.Error(), boottime.Now())
		return
	}
	g.dogEnded = g.child.Watchdog.Ended()
}
