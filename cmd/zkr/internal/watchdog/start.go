package watchdog

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/boottime"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/process"
)

// Watchdog is the side of zkr. Its methods may be called by one goroutine at a time.
type Watchdog struct {
	process *os.Process
	pipe    *os.File
	latest  map[string]string // the message of each verb, for a successor
	ended   chan struct{}
	mu      sync.Mutex // protects state
	state   *os.ProcessState
}

// ErrNotStarted is in the error of Start.
var ErrNotStarted = errors.New("watchdog: not started")

// Start starts a watchdog that knows nothing yet.
func Start() (*Watchdog, error) {
	w := &Watchdog{latest: map[string]string{}}
	if err := w.start(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotStarted, err)
	}
	return w, nil
}

// PID is the process of the watchdog.
func (w *Watchdog) PID() int { return w.process.Pid }

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
	w.process, err = os.StartProcess("/proc/self/exe", []string{name}, &os.ProcAttr{
		Env:   []string{},
		Files: []*os.File{null, null, os.Stderr, read},
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = write.Close()
		return fmt.Errorf("watchdog: %w", err)
	}
	w.pipe, w.ended = write, make(chan struct{})
	go w.wait(w.process, w.ended) // ends with the process, which ends with the pipe
	return nil
}

func (w *Watchdog) wait(p *os.Process, ended chan<- struct{}) {
	state, _ := p.Wait()
	w.mu.Lock()
	w.state = state
	w.mu.Unlock()
	close(ended)
}

// Ended is closed when the watchdog has ended: it has killed the group, or somebody has killed it.
func (w *Watchdog) Ended() <-chan struct{} { return w.ended }

// HasKilled reports whether the watchdog has killed the group. Call it after Ended.
func (w *Watchdog) HasKilled() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state != nil && w.state.ExitCode() == codeKilled
}

// Tag tells by which NAME=value in their environment the child's processes are known.
func (w *Watchdog) Tag(tag string) error { return w.send("tag", tag) }

// Group tells which group to kill.
func (w *Watchdog) Group(group int) error { return w.send("group", fmt.Sprint(group)) }

// Until tells when to kill the group.
func (w *Watchdog) Until(at boottime.Time) error { return w.send("until", fmt.Sprint(int64(at))) }

// KillIfStopped kills a watchdog that somebody has stopped, which makes room for a successor.
func (w *Watchdog) KillIfStopped() {
	if process.IsStopped(w.process.Pid) {
		_ = w.process.Kill() // it may just have ended
	}
}

// maxWrite is how long a message may take. The pipe is full if the watchdog was stopped for hours.
const maxWrite = 100 * time.Millisecond

// send sends a message. If the watchdog is dead, its successor gets the message. A watchdog that does
// not read is killed.
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

// Restart starts a successor that knows what the watchdog knew.
func (w *Watchdog) Restart() error {
	_ = w.pipe.Close()
	if err := w.start(); err != nil {
		return err
	}
	latest := w.latest
	w.latest = map[string]string{}
	for _, verb := range []string{"tag", "group", "until"} {
		if value, ok := latest[verb]; ok {
			if err := w.send(verb, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// maxDismiss is how long a dismissed watchdog may take to end by itself: one that kills looks for the processes that have
// left the group, for up to a second.
const maxDismiss = 2 * time.Second

// Dismiss ends the watchdog, which kills nobody, and waits for its end. A watchdog that does not run, because
// somebody has stopped it, is killed.
func (w *Watchdog) Dismiss() {
	_ = w.pipe.SetWriteDeadline(time.Now().Add(maxWrite))
	if _, err := fmt.Fprintln(w.pipe, "done"); err != nil {
		_ = w.process.Kill() // it does not read; or it has ended, and this does nothing
	}
	late := time.NewTimer(maxDismiss)
	defer late.Stop()
	select {
	case <-w.ended:
	case <-late.C:
		_ = w.process.Kill()
		<-w.ended
	}
	_ = w.pipe.Close() // not before: a watchdog that has read no "done" kills at the end of the pipe
}
