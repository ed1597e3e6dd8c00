// Package watchdog is the process that kills the group of a child when zkr can't: because zkr was
// killed, stopped, or gets no processor.
//
// It is this program again, under another name, in a session of its own and with an empty environment,
// so that what is sent to zkr, to its terminal or to the child's group does not reach it. It reads
// messages from a pipe whose other end only zkr has. The end of the pipe is the death of zkr.
package watchdog

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/boottime"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/process"
)

// name is the first argument of a watchdog. It does not contain "zkr": a kill by the name of the
// program must not hit both processes.
const name = "lock-watchdog"

// The codes with which a watchdog ends, and the descriptor of its pipe.
const (
	codeDone   = 0
	codeFailed = 1
	codeKilled = 3
	pipeFD     = 3
)

// IsWatchdog reports whether this process is a watchdog, by its arguments.
func IsWatchdog(args []string) bool { return len(args) == 1 && args[0] == name }

// Main is the watchdog. It returns the code of the process.
func Main() int {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE, syscall.SIGTSTP)
	_ = os.WriteFile("/proc/self/comm", []byte(name), 0) // else the process has the name "exe"
	_ = os.Chdir("/")
	timer, err := boottime.NewTimer()
	if err != nil {
		fmt.Fprintln(os.Stderr, "zkr watchdog:", err)
		return codeFailed
	}
	w := guard{timer: timer}
	messages := make(chan string)
	go readMessages(os.NewFile(pipeFD, "pipe"), messages) // ends with the pipe, or with the process
	return w.run(messages)
}

func readMessages(from io.Reader, to chan<- string) {
	defer close(to)
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		to <- lines.Text()
	}
}

// guard is what the watchdog knows.
type guard struct {
	timer *boottime.Timer
	group int    // 0: not known yet
	tag   string // in the environment of the child and of what it starts
}

func (g *guard) run(messages <-chan string) int {
	for {
		select {
		case message, isOpen := <-messages:
			if !isOpen { // zkr is dead
				g.kill()
				return codeKilled
			}
			if message == "done" {
				return codeDone
			}
			g.obey(message)
		case <-g.timer.C:
			g.kill()
			return codeKilled
		}
	}
}

// obey follows a message. One that can't be followed is the end of the child, because nobody guards it.
func (g *guard) obey(message string) {
	verb, value, _ := strings.Cut(message, " ")
	var err error
	switch verb {
	case "tag":
		g.tag = value
	case "group":
		g.group, err = strconv.Atoi(value)
	case "until":
		var at int64
		if at, err = strconv.ParseInt(value, 10, 64); err == nil {
			err = g.timer.Set(boottime.Time(at))
		}
	default:
		err = fmt.Errorf("unknown message %q", message)
	}
	if err != nil {
		g.kill()
		fmt.Fprintln(os.Stderr, "zkr watchdog:", err) // it may have no reader
		os.Exit(codeKilled)
	}
}

func (g *guard) kill() { process.KillAll(g.group, g.tag) }
