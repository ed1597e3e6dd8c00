// Package load puts contenders under load, in separate processes that follow commands on their standard input (package agent).
// The same commands drive one process and eight, Go and Java.
//
//	open all ADDRESS SESSIONS                          opens sessions
//	prepare NAME PATH LOCKS FIRST STRIDE CONTENDERS BASKETS
//	                                                   makes every STRIDEth of the contenders; BASKETS is empty, or a file with the
//	                                                   paths that each turn locks together
//	loop NAME FILE BEGIN PAIRS HOLD                    has them lock and unlock; writes spans to the file
//	hold NAME PATH LOCKS                               takes every lock; answers when it was called and when it had them
//	release NAME                                       answers when it was called and when that was done
//	latch NAME FILE PATH TIMES PAUSE                   hands an election over; writes spans to the file
//	memory all                                         answers with heap, stacks, resident bytes, goroutines or threads
//	close all                                          closes the sessions; waiting contenders fail
//
// Times are nanoseconds of the machine's monotonic clock, which all processes share.
package load

import (
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Span is one acquisition, in nanoseconds of the machine's monotonic clock.
type Span struct {
	Called, Acquired, Releasing, Released int64

	Turn  int64 // number of the acquisition in its process, from 0
	Items []int // locks of a basket; nil for a single lock; not in the file, because the turn decides it
}

const spanSize = 5 * 8

// clock is the machine's monotonic clock. Go's own is the same one from another beginning, and cheaper to read than by a call
// of the kernel.
type clock struct {
	began time.Time
	at    int64
}

// newClock reads the two clocks one after the other.
func newClock() (clock, error) {
	return align(time.Now, func() (int64, error) {
		var now unix.Timespec
		err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
		return now.Nano(), err
	})
}

// The fastest of 5,000 handoffs by the raw socket took 77 µs. Clocks further apart would show two holders where there was one after the other.
const (
	alignedWithin = 2 * time.Microsecond
	tooFarApart   = 20 * time.Microsecond
	alignments    = 100
)

// align reads Go's clock before and after the machine's. Where both readings are far apart, because the process was preempted, it
// reads again; the closest ones count.
func align(now func() time.Time, machine func() (int64, error)) (clock, error) {
	var c clock
	var closest time.Duration
	for i := range alignments {
		before := now()
		at, err := machine()
		if err != nil {
			return clock{}, fmt.Errorf("load: clock: %w", err)
		}
		if took := now().Sub(before); i == 0 || took < closest {
			c, closest = clock{began: before.Add(took / 2), at: at}, took
		}
		if closest <= alignedWithin {
			break
		}
	}
	if closest > tooFarApart {
		return clock{}, fmt.Errorf("load: clock: of %d readings the closest took %v", alignments, closest)
	}
	return c, nil
}

func (c clock) now() int64                   { return c.of(time.Now()) }
func (c clock) of(t time.Time) int64         { return c.at + t.Sub(c.began).Nanoseconds() }
func (c clock) until(at int64) time.Duration { return time.Duration(at - c.now()) }

// writeSpans writes a file of big-endian numbers, which Java writes as well.
func writeSpans(file string, spans []Span) error {
	b := make([]byte, 0, len(spans)*spanSize)
	for _, s := range spans {
		for _, v := range []int64{s.Called, s.Acquired, s.Releasing, s.Released, s.Turn} {
			b = binary.BigEndian.AppendUint64(b, uint64(v))
		}
	}
	return os.WriteFile(file, b, 0o600)
}

func readSpans(file string) ([]Span, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	if len(b)%spanSize != 0 {
		return nil, fmt.Errorf("load: %s: %d bytes are no spans", file, len(b))
	}
	number := func(b []byte) int64 { return int64(binary.BigEndian.Uint64(b)) }
	spans := make([]Span, 0, len(b)/spanSize)
	for s := range slices.Chunk(b, spanSize) {
		spans = append(spans, Span{
			Called: number(s), Acquired: number(s[8:]), Releasing: number(s[16:]), Released: number(s[24:]), Turn: number(s[32:]),
		})
	}
	return spans, nil
}
