//go:build linux

// Package boottime is a clock that keeps running while the machine is suspended, like the servers' clocks.
package boottime

import (
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Time is the time since the boot of the machine. All processes share the same origin.
type Time time.Duration

// Now returns the present moment.
func Now() Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("CLOCK_BOOTTIME: " + err.Error()) // every Linux since 2.6.39 has it
	}
	return Time(ts.Nano())
}

// Until returns the moment d from now, for a d computed from the clock of time.Now.
func Until(t time.Time) Time { return Now().Add(time.Until(t)) }

// Add returns the moment d later.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub returns the time from other to t.
func (t Time) Sub(other Time) time.Duration { return time.Duration(t - other) }

// Timer fires at a moment, even if the machine was suspended at that moment. Timers of package time would fire later
// by the length of the suspension.
type Timer struct {
	file *os.File
	C    <-chan struct{} // gets a value when the timer fires
}

// NewTimer returns an unset timer. A timer lasts until the end of the process, and needs no Close.
func NewTimer() (*Timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("timerfd: %w", err)
	}
	fired := make(chan struct{})
	t := &Timer{file: os.NewFile(uintptr(fd), "timerfd"), C: fired}
	go func() { // ends with the process
		var count [8]byte
		for {
			if _, err := t.file.Read(count[:]); err != nil {
				return
			}
			if binary.NativeEndian.Uint64(count[:]) > 0 {
				fired <- struct{}{}
			}
		}
	}()
	return t, nil
}

// Set makes the timer fire at t alone.
func (t *Timer) Set(at Time) error {
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(1, int64(at)))}
	raw, err := t.file.SyscallConn()
	if err != nil {
		return err
	}
	var failure error
	if err := raw.Control(func(fd uintptr) {
		failure = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &spec, nil)
	}); err != nil {
		return err
	}
	return failure
}
