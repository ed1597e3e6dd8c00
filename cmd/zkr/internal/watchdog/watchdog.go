//go:build linux

// Package watchdog is the process that kills the group of a child when zkr can't: because zkr was
// killed, stopped, or gets no processor.
//
// The watchdog is this program under another name, in its own session and with an empty environment, so that signals
// to zkr, to its terminal or to the child's group do not reach the watchdog. It reads messages from a pipe whose
// other end only zkr has. The end of the pipe means the death of zkr.
package watchdog

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/boottime"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/process"
)

// name is the first argument of a watchdog. It does not contain "zkr", so that a kill by the name of the program does
// not hit both processes.
const name = "lock-watchdog"

// Exit codes of a watchdog, and the descriptors of its two pipes.
const (
	codeDone   = 0
	codeFailed = 1
	codeKilled = 3
	pipeFD     = 3
	echoFD     = 4
)

// IsWatchdog reports whether the arguments of this process are a watchdog's.
func IsWatchdog(args []string) bool { return len(args) == 1 && args[0] == name }

// Main is the watchdog. It returns the code of the process.
func Main() int {
	signal.Ignore(syscall.SIGPIPE, syscall.SIGTSTP)
	caught := make(chan os.Signal, maxEchoes)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	go echo(caught, os.NewFile(echoFD, "echo"))          // ends with the process
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

// echo reports the signals to this process, and otherwise ignores them.
func echo(caught <-chan os.Signal, to io.Writer) {
	for one := range caught {
		_, _ = to.Write([]byte{byte(one.(syscall.Signal))}) // always the case on Linux; zkr may be dead
	}
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
	timer        *boottime.Timer
	family       process.Family
	rememberedAt boottime.Time
}

// rememberPeriod is the least time between two scans of the command's processes, because messages may arrive in
// bursts.
const rememberPeriod = time.Second

func (g *guard) remember() {
	if now := boottime.Now(); now.Sub(g.rememberedAt) >= rememberPeriod {
		g.rememberedAt = now
		g.family.Remember(os.Getpid())
	}
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

// obey follows a message. If it can't, it ends the child, which would be unguarded.
func (g *guard) obey(message string) {
	verb, value, _ := strings.Cut(message, " ")
	var err error
	switch verb {
	case "family":
		err = json.Unmarshal([]byte(value), &g.family)
	case "until":
		var at int64
		if at, err = strconv.ParseInt(value, 10, 64); err == nil {
			err = g.timer.Set(boottime.Time(at))
		}
		g.remember()
	default:
		err = fmt.Errorf("unknown message %q", message)
	}
	if err != nil {
		g.kill()
		fmt.Fprintln(os.Stderr, "zkr watchdog:", err) // it may have no reader
		os.Exit(codeKilled)
	}
}

func (g *guard) kill() {
	g.family.Kill(os.Getpid())
	g.family.Cgroup.Remove()
}
