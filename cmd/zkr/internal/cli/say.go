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

// lineWriter writes to stderr in a goroutine of its own, so that a reader that hangs does not keep the caller
// from watching over its lock. While many lines wait for the reader, it drops further ones.
type lineWriter struct {
	start   sync.Once
	lines   chan string
	pending sync.WaitGroup
}

// maxPendingLines is how many lines may wait for the reader.
const maxPendingLines = 1024

func (w *lineWriter) queue(line string) {
	w.start.Do(func() {
		w.lines = make(chan string, maxPendingLines)
		go func() { // ends with the process
			for line := range w.lines {
				_, _ = os.Stderr.WriteString(line) // there is no better place to report an error to
				w.pending.Done()
			}
		}()
	})
	w.pending.Add(1)
	select {
	case w.lines <- line:
	default:
		w.pending.Done()
	}
}

// Write queues p, which has whole lines.
func (w *lineWriter) Write(p []byte) (int, error) {
	w.queue(string(p))
	return len(p), nil
}

// flush waits up to a second until everything is written.
func (w *lineWriter) flush() {
	written := make(chan struct{})
	go func() { // ends with the last line, or with the process
		w.pending.Wait()
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(time.Second):
	}
}

// surviveSIGPIPE makes writing to a stderr whose reader has gone an error instead of the end of this process,
// which guards a command. Commands that only print end with their reader, as others do.
//
// The signal is caught, not ignored: a command would inherit the latter.
func surviveSIGPIPE() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
