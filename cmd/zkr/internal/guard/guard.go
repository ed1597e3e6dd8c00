//go:build linux

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

// guard is the state of Run. It belongs to a single goroutine.
type guard struct {
	Config

	child     *child.Child
	result    Result
	until     boottime.Time // trusted until; the last value while the lease stood
	killAt    boottime.Time // 0: undecided
	hasExited bool          // the command; others of its group may live
	isKilled  bool
	isPausing bool           // this process is to stop when the command has
	stopMates syscall.Signal // a stop signal that the others of this process's group did not get; 0: they did

	hasProceeded  bool // after a stop of this process, with SIGCONT still pending
	pauseAt       boottime.Time
	isSilent      bool // the lease was lost because the servers are
	saidGrace     bool
	saidToLeavers bool            // SIGTERM was sent to the descendants outside the group
	dogEnded      <-chan struct{} // nil once no watchdog follows
	ranAt         boottime.Time   // the latest moment at which this process is known to have run
	stall         stall
	echoes        echoes
}

// Run starts a command and returns when no process of its group is alive, and after a loss or a revocation also no
// descendant outside the group. Call Run from the main thread, with a lease that is held. Run does not release the
// lease. An error means that the command was not started.
func Run(cfg Config, cmd child.Command) (Result, error) {
	g := &guard{Config: cfg, until: boottime.Until(cfg.Lease.TrustedUntil()), ranAt: boottime.Now()}
	if boottime.Now() >= g.until-boottime.Time(g.grace()) { // also for a lease that ended
		cfg.Say("lock lost before the command was started: %s: %s", cfg.Lease.Path(), whyEnded(cfg.Lease))
		return Result{IsLost: true}, nil
	}
	var err error
	if g.child, err = child.Start(cmd, g.until); err != nil {
		return Result{}, err
	}
	g.dogEnded = g.child.Watchdog.Ended()
	hasPanicked := true
	defer func() {
		if hasPanicked { // the caller's deferred calls release the lock
			g.child.Kill()
			g.child.Finish(true)
		}
	}()
	for !g.isOver() {
		g.look()
		g.await()
	}
	g.result.Status = g.child.Finish(g.endsLeavers())
	hasPanicked = false
	if !g.result.IsLost && g.child.Watchdog.HasKilled() { // just before it got a later deadline
		g.sayLost(whySilent)
	}
	return g.result, nil
}

// isOver reports whether the command and all processes that must end with it are dead. On the way, it decides whether
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

// endsLeavers reports whether descendants outside the group must end, too, because the lease was taken away or asked
// for. They live on if the command ended by itself.
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
	g.lookAtLease()
	now := boottime.Now()
	g.passOn(now)
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

// lookAtLease notices a loss. After a loss by silence, it also notices when the lease ends or is trusted for less
// long than at the SIGTERM.
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
			g.lose("can't reach the watchdog: "+err.Error(), boottime.Now())
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
	// If another client deleted the znode or ended the session, a third client may hold the lock by now, and the
	// fencing token decides. A candidate that yields keeps its znode until the command ends.
	g.lose(cause, min(g.until, now.Add(g.grace())))
}

// trustOf returns until when a lease is trusted, and whether it is held. It reads the trust first: the trust of an ended lease
// is over, and would look like silent servers.
func trustOf(lease *recipes.Lease) (until boottime.Time, isHeld bool) {
	until = boottime.Until(lease.TrustedUntil())
	return until, lease.Context().Err() == nil
}

// lose ends the command because the lease is lost, or because its trust is about to end. why is the reason, unless a
// stall of this process explains the loss.
func (g *guard) lose(why string, killAt boottime.Time) {
	g.sayLost(why)
	g.terminate(killAt)
}

func (g *guard) sayLost(why string) {
	g.result.IsLost = true
	what := "lost"
	if g.isSilent && boottime.Now() < g.until || errors.Is(context.Cause(g.Lease.Context()), recipes.ErrReleased) {
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

// kill kills the group and, if they must end as well, descendants outside the group.
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
		react = func() { g.onSignal(s.(syscall.Signal)) } // always the case on Linux
	case s := <-g.child.Watchdog.Signals():
		react = func() { g.echoes.onWatchdogs(s, boottime.Now()) }
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
	pause = g.pauseToPassOn(now, pause)
	return max(pause, 0)
}

// onWatchdogEnded starts another watchdog, unless the watchdog killed the group.
func (g *guard) onWatchdogEnded() {
	g.dogEnded = nil
	if g.child.Watchdog.HasKilled() {
		if !g.result.IsLost {
			g.lose("the watchdog killed the command because this process was not scheduled", boottime.Now())
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
