//go:build linux

package watchdog

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/boottime"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/process"
)

// Watchdog is zkr's side of the watchdog. Call its methods from one goroutine at a time.
type Watchdog struct {
	process *os.Process
	pipe    *os.File
	latest  map[string]string // the message of each verb, for a successor
	ended   chan struct{}
	echoes  chan syscall.Signal
	mu      sync.Mutex // protects state
	state   *os.ProcessState
}

// ErrNotStarted is in the error of Start.
var ErrNotStarted = errors.New("watchdog: not started")

// Start starts a watchdog that knows nothing yet.
func Start() (*Watchdog, error) {
	w := &Watchdog{latest: map[string]string{}, echoes: make(chan syscall.Signal, maxEchoes)}
	if err := w.start(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	return w, nil
}

// PID is the process of the watchdog.
func (w *Watchdog) PID() int { return w.process.Pid }

// maxEchoes is how many signals are kept for their reader.
const maxEchoes = 16

// Signals has the signals to the watchdog. The watchdog is in another session and process group than zkr, so it gets only
// signals sent to all processes of a service, a user's session, a batch job or the machine. The command got these signals,
// too.
func (w *Watchdog) Signals() <-chan syscall.Signal { return w.echoes }

// readEchoes reads the signals that a watchdog reports.
func (w *Watchdog) readEchoes(from *os.File) {
	defer func() { _ = from.Close() }()
	var one [1]byte
	for {
		if _, err := from.Read(one[:]); err != nil {
			return
		}
		select {
		case w.echoes <- syscall.Signal(one[0]):
		default:
		}
	}
}

func (w *Watchdog) start() error {
	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("watchdog: %w", err)
	}
	defer func() { _ = read.Close() }()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		_ = write.Close()
		return fmt.Errorf("watchdog: %w", err)
	}
	defer func() { _ = null.Close() }()
	echoes, echo, err := os.Pipe()
	if err != nil {
		_ = write.Close()
		return fmt.Errorf("watchdog: %w", err)
	}
	defer func() { _ = echo.Close() }()
	w.process, err = process.Start("/proc/self/exe", []string{name}, &os.ProcAttr{
		Env:   []string{},
		Files: []*os.File{null, null, os.Stderr, read, echo},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = write.Close()
		_ = echoes.Close()
		return fmt.Errorf("watchdog: %w", err)
	}
	go w.readEchoes(echoes) // ends with the process
	w.pipe, w.ended = write, make(chan struct{})
	go w.wait(w.process, w.ended) // ends with the process, which ends with the pipe
	return nil
}

func (w *Watchdog) wait(p *os.Process, ended chan<- struct{}) {
	state, _ := p.Wait()
	process.Reaped(p.Pid)
	w.mu.Lock()
	w.state = state
	w.mu.Unlock()
	close(ended)
}

// Ended is closed when the watchdog ends, after it killed the group or was killed itself.
func (w *Watchdog) Ended() <-chan struct{} { return w.ended }

// HasKilled reports whether the watchdog killed the group. Call it after Ended.
func (w *Watchdog) HasKilled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state != nil && w.state.ExitCode() == codeKilled
}

// Family sends the processes to kill.
func (w *Watchdog) Family(f process.Family) error {
	text, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("watchdog: %w", err)
	}
	return w.send("family", string(text))
}

// Until sends the time at which to kill the group.
func (w *Watchdog) Until(at boottime.Time) error { return w.send("until", fmt.Sprint(int64(at))) }

// KillIfStopped kills a stopped watchdog, to make room for a successor.
func (w *Watchdog) KillIfStopped() {
	if process.IsStopped(w.process.Pid) {
		_ = w.process.Kill() // it may be dead by now
	}
}

// maxWrite is how long a message may take. The pipe is full if the watchdog was stopped for hours.
const maxWrite = 100 * time.Millisecond

// send sends a message. If the watchdog is dead, its successor gets the message. A watchdog that does not read is
// killed.
func (w *Watchdog) send(verb, value string) error {
	if w.latest[verb] == value {
		return nil
	}
	w.latest[verb] = value
	if err := w.pipe.SetWriteDeadline(time.Now().Add(maxWrite)); err != nil {
		return fmt.Errorf("watchdog: %w", err)
	}
	_, err := fmt.Fprintf(w.pipe, "%s %s\n", verb, value)
	switch {
	case errors.Is(err, syscall.EPIPE):
		return nil
	case errors.Is(err, os.ErrDeadlineExceeded):
		return w.process.Kill()
	default:
		return err
	}
}

// Restart starts a successor with all that the old watchdog knew.
func (w *Watchdog) Restart() error {
	_ = w.pipe.Close()
	if err := w.start(); err != nil {
		return err
	}
	latest := w.latest
	w.latest = map[string]string{}
	for _, verb := range []string{"family", "until"} {
		if value, ok := latest[verb]; ok {
			if err := w.send(verb, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxDismiss bounds the end of a dismissed watchdog. A watchdog that kills looks for descendants outside the group for up
// to a second.
const maxDismiss = 2 * time.Second

// Dismiss ends the watchdog without a kill, and waits for its end. A stopped watchdog is killed.
func (w *Watchdog) Dismiss() {
	_ = w.pipe.SetWriteDeadline(time.Now().Add(maxWrite))
	if _, err := fmt.Fprintln(w.pipe, "done"); err != nil {
		_ = w.process.Kill() // does nothing if the watchdog is dead
	}
	late := time.NewTimer(maxDismiss)
	defer late.Stop()
	select {
	case <-w.ended:
	case <-late.C:
		_ = w.process.Kill()
		<-w.ended
	}
	_ = w.pipe.Close() // not earlier: without "done", a watchdog kills at the end of the pipe
}
