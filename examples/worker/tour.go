package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"
)

const (
	workers     = 3
	runsPerTerm = 3 // before something happens to the leader
)

// tour shows three workers, and removes their leader in three ways. It prints the events from the workers' logs.
type tour struct {
	o      options
	out    io.Writer
	stderr io.Writer
	began  time.Time

	events    *journal
	seen      int // number of events that were printed
	workers   map[string]*process
	leader    string // and its term
	token     int64
	runs      int // recorded in this term
	handovers []handover
}

// handover is one change of leader caused by the tour.
type handover struct {
	signal   syscall.Signal
	from     string
	token    int64     // of the term that ended
	at       time.Time // of the signal
	to       string
	led      time.Time // when the next leader led
	firstRun time.Time // the start of its first run
}

// play is the script.
func (t *tour) play(ctx context.Context) error {
	limit := time.Minute + 20*t.o.every + 10*t.o.sessionTimeout
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("nothing goes on any more"))
	defer cancel()
	for n := range workers {
		if err := t.start(ctx, fmt.Sprintf("worker-%d", n+1)); err != nil {
			return err
		}
	}
	for _, step := range []func(context.Context) error{
		t.stopLeader, t.crashLeader, t.pauseLeader, t.awaitRuns,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// stopLeader is a rolling update: the leader is asked to stop, and hands over at once.
func (t *tour) stopLeader(ctx context.Context) error {
	if err := t.awaitRuns(ctx); err != nil {
		return err
	}
	victim := t.leader
	if err := t.takeAway(ctx, stopNicely, "a rolling update asks it to stop"); err != nil {
		return err
	}
	return t.start(ctx, victim)
}

// crashLeader ends the leader without a word: its session has to expire.
func (t *tour) crashLeader(ctx context.Context) error {
	if err := t.awaitRuns(ctx); err != nil {
		return err
	}
	victim := t.leader
	if err := t.takeAway(ctx, crash, "it crashes, and its session has to expire"); err != nil {
		return err
	}
	return t.start(ctx, victim)
}

// pauseLeader is the case that no election can prevent: the leader hangs in the middle of a run, for longer than its
// session, and continues the run while another worker leads.
func (t *tour) pauseLeader(ctx context.Context) error {
	if err := t.awaitRuns(ctx); err != nil {
		return err
	}
	victim := t.workers[t.leader]
	for {
		begun, err := t.until(ctx, func(e event) bool { return e.Msg == saysBegins && e.Token == t.token })
		if err != nil {
			return err
		}
		err = t.takeAway(ctx, pause, fmt.Sprintf("it hangs in the middle of run %d", begun.Run))
		if err == nil {
			break
		}
		if !errors.Is(err, errTooLate) {
			return err
		}
	}
	if _, err := t.until(ctx, func(e event) bool { return e.Msg == saysRuns && e.Token == t.token }); err != nil {
		return err
	}
	t.say("→ SIGCONT to %s: it wakes up, and goes on with its run", victim.name)
	if err := victim.resume(); err != nil {
		return err
	}
	_, err := t.until(ctx, func(e event) bool { return e.Worker == victim.name && e.Stale })
	return err
}

// errTooLate is returned by takeAway for a pause after the run that it was meant to interrupt.
var errTooLate = errors.New("too late")

// takeAway sends the leader a signal, and waits until another worker leads and starts its first run.
func (t *tour) takeAway(ctx context.Context, signal syscall.Signal, how string) error {
	victim := t.workers[t.leader]
	h := handover{signal: signal, from: victim.name, token: t.token, at: time.Now()}
	if err := victim.cmd.Process.Signal(signal); err != nil {
		return fmt.Errorf("%s: %w", victim.name, err)
	}
	t.say("→ %s to %s: %s", signalName(signal), victim.name, how)
	next, err := t.until(ctx, func(e event) bool {
		return e.Msg == saysLeads || signal == pause && e.Msg == saysRuns && e.Token == h.token
	})
	if err != nil {
		return err
	}
	if next.Msg != saysLeads {
		if err := victim.resume(); err != nil {
			return err
		}
		return errTooLate
	}
	h.to, h.led = next.Worker, next.Time
	first, err := t.until(ctx, func(e event) bool { return e.Msg == saysBegins && e.Token == next.Token })
	if err != nil {
		return err
	}
	h.firstRun = first.Time
	t.handovers = append(t.handovers, h)
	if signal != pause {
		<-victim.exited
		delete(t.workers, victim.name)
	}
	return nil
}

// awaitRuns waits until the leader at that time records its runs.
func (t *tour) awaitRuns(ctx context.Context) error {
	if t.leader != "" && t.runs >= runsPerTerm {
		return nil
	}
	_, err := t.until(ctx, func(event) bool { return t.runs >= runsPerTerm })
	return err
}

// watch prints events until ctx ends.
func (t *tour) watch(ctx context.Context) {
	_, _ = t.until(ctx, func(event) bool { return false })
}

// until prints all events up to the first that matches.
func (t *tour) until(ctx context.Context, match func(event) bool) (event, error) {
	e, seen, err := t.events.await(ctx, t.seen, func(e event) bool {
		t.tell(e)
		return match(e)
	})
	t.seen = seen
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = errors.New("interrupted")
	}
	return e, err
}

// tell tracks the leader and prints the event.
func (t *tour) tell(e event) {
	switch e.Msg {
	case saysLeads:
		t.leader, t.token, t.runs = e.Worker, e.Token, 0
		t.sayAt(e.Time, "%s leads, its token is %d", e.Worker, e.Token)
	case saysEnds:
		t.sayAt(e.Time, "%s leads no more: %s", e.Worker, e.Err)
	case saysRuns:
		if e.Token == t.token {
			t.runs++
		}
		t.sayAt(e.Time, "%s: run %d %s", e.Worker, e.Run, e.Outcome)
	case saysFails:
		t.sayAt(e.Time, "%s: %s", e.Worker, e.Err)
	}
}

func (t *tour) say(format string, args ...any) { t.sayAt(time.Now(), format, args...) }

func (t *tour) sayAt(at time.Time, format string, args ...any) {
	_, _ = fmt.Fprintf(t.out, "%5.1fs  %s\n", at.Sub(t.began).Seconds(), fmt.Sprintf(format, args...))
}

// start starts a worker, for the first time or again, as a supervisor would.
func (t *tour) start(ctx context.Context, name string) error {
	p, err := startProcess(ctx, t.o, name, t.events, t.stderr)
	if err != nil {
		return err
	}
	t.workers[name] = p
	return nil
}

// close stops the workers, the leader last, so that the others do not lead for a moment each.
func (t *tour) close() (err error) {
	leader := t.workers[t.leader]
	for _, p := range t.workers {
		if p != leader {
			err = errors.Join(err, p.stop())
		}
	}
	if leader != nil {
		err = errors.Join(err, leader.stop())
	}
	return err
}
