//go:build linux

package guard

import (
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/boottime"
)

// echoTime bounds how long a signal waits until the watchdog reports the same signal.
const echoTime = 300 * time.Millisecond

// echoes keeps signals from reaching the command twice. A service manager sends a signal to all processes of a service: to zkr, to
// the watchdog and to the command. So a signal that the watchdog got at the same time is not passed on.
type echoes struct {
	waiting []heardSignal // in order of arrival
	heard   []heardSignal // by the watchdog, and not by this process
}

type heardSignal struct {
	syscall.Signal

	at boottime.Time
}

// remove takes the first signal of a kind out of a list.
func remove(from []heardSignal, s syscall.Signal) (rest []heardSignal, isRemoved bool) {
	for i, one := range from {
		if one.Signal == s {
			return append(from[:i:i], from[i+1:]...), true
		}
	}
	return from, false
}

// onOwn records a signal to this process.
func (e *echoes) onOwn(s syscall.Signal, now boottime.Time) {
	for len(e.heard) > 0 && e.heard[0].at.Add(echoTime) < now {
		e.heard = e.heard[1:]
	}
	var isEcho bool
	if e.heard, isEcho = remove(e.heard, s); !isEcho {
		e.waiting = append(e.waiting, heardSignal{s, now})
	}
}

// onWatchdogs notes a signal that the watchdog got.
func (e *echoes) onWatchdogs(s syscall.Signal, now boottime.Time) {
	var isEcho bool
	if e.waiting, isEcho = remove(e.waiting, s); !isEcho {
		e.heard = append(e.heard, heardSignal{s, now})
	}
}

// due takes out the signals that are to be passed on now.
func (e *echoes) due(now boottime.Time) (due []heardSignal) {
	for len(e.waiting) > 0 && e.waiting[0].at.Add(echoTime) <= now {
		due, e.waiting = append(due, e.waiting[0]), e.waiting[1:]
	}
	return due
}

// passOn passes on the signals that waited for echoTime.
func (g *guard) passOn(now boottime.Time) {
	for isMore := true; isMore; {
		select {
		case s := <-g.child.Watchdog.Signals():
			g.echoes.onWatchdogs(s, now)
		default:
			isMore = false
		}
	}
	for _, s := range g.echoes.due(now) {
		g.child.Signal(s.Signal)
	}
}

// pauseToPassOn is the time until passOn has something to do, at most limit.
func (g *guard) pauseToPassOn(now boottime.Time, limit time.Duration) time.Duration {
	if len(g.echoes.waiting) == 0 {
		return limit
	}
	return min(limit, g.echoes.waiting[0].at.Add(echoTime).Sub(now))
}
