package cli

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stderr is where all of zkr's own lines go.
var stderr lineWriter //nolint:gochecknoglobals // the process has one

// say writes a line to stderr. It does not block.
func say(format string, args ...any) {
	stderr.queue("zkr: " + strings.TrimSuffix(fmt.Sprintf(format, args...), "\n") + "\n")
}

// lineWriter writes to stderr in its own goroutine, so that a reader that hangs does not keep the caller from
// watching over its lock. While many lines wait for the reader, it drops further lines.
type lineWriter struct {
	start sync.Once
	lines chan line
}

// line is a line to be written, or a mark of flush behind the lines queued before.
type line struct {
	text    string
	reached chan struct{} // of a mark: closed when the lines before are written
}

// maxPendingLines is how many lines may wait for the reader.
const maxPendingLines = 1024

// begin starts the goroutine, once.
func (w *lineWriter) begin() {
	w.start.Do(func() {
		w.lines = make(chan line, maxPendingLines)
		go func() { // ends with the process
			for next := range w.lines {
				if next.reached != nil {
					close(next.reached)
					continue
				}
				_, _ = os.Stderr.WriteString(next.text) // there is no better place to report an error to
			}
		}()
	})
}

func (w *lineWriter) queue(text string) {
	w.begin()
	select {
	case w.lines <- line{text: text}:
	default:
	}
}

// Write queues p, which has whole lines.
func (w *lineWriter) Write(p []byte) (int, error) {
	w.queue(string(p))
	return len(p), nil
}

// flush waits up to a second until all lines queued so far are written. Other goroutines may queue lines meanwhile.
func (w *lineWriter) flush() {
	w.begin()
	late := time.NewTimer(time.Second)
	defer late.Stop()
	mark := line{reached: make(chan struct{})}
	select {
	case w.lines <- mark:
	case <-late.C:
		return
	}
	select {
	case <-mark.reached:
	case <-late.C:
	}
}

// surviveSIGPIPE turns a write to a stderr without a reader into an error. The signal would end this process, which
// guards a command. Commands that only print end with their reader, as usual.
//
// The signal is caught, not ignored, because a command would inherit an ignored signal.
func surviveSIGPIPE() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
