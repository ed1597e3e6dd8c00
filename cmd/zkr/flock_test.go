//go:build linux

package main_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// shell is an interactive shell with job control on a terminal. TOOL in what is typed stands for a lock.
type shell struct {
	*terminal
	*run

	seen int // bytes of the screen
}

// eachTool runs a scene with zkr and with flock(1), which has to behave alike.
func eachTool(t *testing.T, scene func(s *shell)) {
	t.Helper()
	for name, tool := range map[string]string{"zkr": binary + " lock /l --", "flock": "flock lockfile"} {
		t.Run(name, func(t *testing.T) { scene(newShell(newWorld(t), tool)) })
	}
}

func newShell(w *world, tool string) *shell {
	w.Helper()
	s := &shell{terminal: newTerminal(w)}
	require.NoError(w, os.WriteFile(w.file("tool"), []byte("#!/bin/sh\nexec "+tool+" \"$@\"\n"), 0o700)) //nolint:gosec // a script
	s.run = w.startWith(func(c *exec.Cmd) {
		s.attach(c)
		c.Path, c.Args = "/bin/bash", []string{"bash", "--norc", "--noprofile", "-i"}
		c.Env = append(c.Env, "PS1=PROMPT> ", "TERM=dumb", "LESS=")
	})
	s.sees("PROMPT> ")
	return s
}

// script writes a script that a shell runs as one job.
func (s *shell) script(text string) {
	s.Helper()
	require.NoError(s, os.WriteFile(s.file("script"), []byte("#!/bin/bash\n"+text), 0o700)) //nolint:gosec // a script
}

// sees waits until the screen shows a text after what was seen before.
func (s *shell) sees(text string) {
	s.Helper()
	isSeen := func() bool {
		before, _, ok := strings.Cut(s.screen.String()[s.seen:], text)
		if ok {
			s.seen += len(before) + len(text)
		}
		return ok
	}
	for end := time.Now().Add(patience); !isSeen(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			require.FailNow(s, "not on the screen", "%q in %q", text, s.screen.String()[s.seen:])
		}
	}
}

// prompt waits until the shell has the terminal again, and for its next output.
func (s *shell) prompt(want string) {
	s.Helper()
	s.sees("PROMPT> ")
	s.types("echo sta''tus=$?\n")
	s.sees("status=" + want)
	s.sees("PROMPT> ")
}

// quits ends the shell.
func (s *shell) quits() {
	s.Helper()
	s.types("exit\n")
	s.await()
}

// TestPipelineSharesTheTerminal requires that the other side of a pipe can read keys while the command runs, as
// less(1) does.
func TestPipelineSharesTheTerminal(t *testing.T) { eachTool(t, pipelineSharesTheTerminal) }

func pipelineSharesTheTerminal(s *shell) {
	s.Helper()
	s.types("./tool sh -c 'echo up > up; while [ ! -e go ]; do sleep 0.02; done; echo da''ta' | sh -c 'read key < /dev/tty; echo key=$key > key; cat'\n")
	s.content("up")
	s.types("k\n")
	require.Equal(s, "key=k", s.content("key"))
	require.NoError(s, os.WriteFile(s.file("go"), nil, 0o600))
	s.sees("data")
	s.prompt("0")
	s.quits()
}

func TestLessBehindAPipe(t *testing.T) { eachTool(t, lessBehindAPipe) }

func lessBehindAPipe(s *shell) {
	s.Helper()
	s.types("./tool sh -c 'seq 1 500; echo up > up; sleep 0.3; seq 501 1000' | TERM=vt100 less\n")
	s.sees("\n:")
	s.types("q")
	s.prompt("0")
	s.quits()
}

// TestBackgroundJobOfAScript requires that the script keeps the terminal, and that Ctrl-C does not reach the job.
func TestBackgroundJobOfAScript(t *testing.T) {
	eachTool(t, func(s *shell) {
		s.script(`
./tool sh -c 'echo up > up; while [ ! -e go ]; do sleep 0.02; done; echo done > done' &
while [ ! -e up ]; do sleep 0.02; done
trap 'echo int > int' INT
echo ready > ready
read line; echo "$line" > line
while [ ! -e int ]; do sleep 0.02; done
wait
[ -e done ] && exit 3`)
		s.types("./script\n")
		s.content("ready")
		s.types("typed\n")
		require.Equal(s, "typed", s.content("line"))
		s.types("\x03")
		s.content("int")
		require.NoError(s, os.WriteFile(s.file("go"), nil, 0o600))
		s.content("done")
		s.prompt("3")
		s.quits()
	})
}

// TestCtrlCEndsALoop: in a script, and at the prompt.
func TestCtrlCEndsALoop(t *testing.T) {
	const loop = `for i in 1 2 3; do ./tool sh -c 'echo run >> runs; exec sleep 30'; done; echo after > after`
	for name, start := range map[string]string{"script": "./script\n", "prompt": loop + "\n"} {
		t.Run(name, func(t *testing.T) {
			eachTool(t, func(s *shell) {
				s.script(loop)
				s.types(start)
				s.content("runs")
				s.types("\x03")
				s.prompt("130")
				require.Len(s, s.lines("runs"), 1)
				require.NoFileExists(s, s.file("after"))
				s.quits()
			})
		})
	}
}

// TestCtrlCIsSentOnce uses a command that reacts differently to a second Ctrl-C, and requires that it gets only one.
// flock(1) dies of Ctrl-C, and its command continues until it finds the file.
func TestCtrlCIsSentOnce(t *testing.T) {
	eachTool(t, func(s *shell) {
		s.script(`./tool sh -c 'trap "echo int >> ints; echo > got" INT; echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done; exit 4'; echo $? > code`)
		s.types("./script\n")
		pid := s.pid("pid")
		s.types("\x03")
		s.content("got")
		time.Sleep(200 * time.Millisecond) //nolint:forbidigo // a second one
		require.NoError(s, os.WriteFile(s.file("go"), nil, 0o600))
		s.sees("PROMPT> ")
		s.awaitDead(pid)
		require.Len(s, s.lines("ints"), 1)
		s.quits()
	})
}

// TestSizeOfTheTerminal reaches the command of a script, too.
func TestSizeOfTheTerminal(t *testing.T) {
	eachTool(t, func(s *shell) {
		s.script(`./tool sh -c 'trap "echo winch > winch" WINCH; echo up > up; while [ ! -e winch ]; do sleep 0.02; done; exit 5'`)
		s.types("./script\n")
		s.content("up")
		s.resize()
		s.prompt("5")
		s.quits()
	})
}

// TestSizeOfTheTerminalEndsNothing uses a command that does not catch the signal.
func TestSizeOfTheTerminalEndsNothing(t *testing.T) {
	eachTool(t, func(s *shell) {
		s.script(`./tool sh -c 'echo up > up; while [ ! -e go ]; do sleep 0.02; done; exit 5'`)
		s.types("./script\n")
		s.content("up")
		s.resize()
		require.NoError(s, os.WriteFile(s.file("go"), nil, 0o600))
		s.prompt("5")
		s.quits()
	})
}

// TestCtrlZInAPipeline stops and continues all of it.
func TestCtrlZInAPipeline(t *testing.T) { eachTool(t, ctrlZInAPipeline) }

func ctrlZInAPipeline(s *shell) {
	s.Helper()
	s.types("./tool sh -c 'echo $$ > pid; exec sleep 100' | cat\n") // a shell that waits in vfork does not stop
	pid := s.pid("pid")
	s.eventually(func() bool { return name(pid) == "sleep" }, "it sleeps")
	for range 3 {
		s.types("\x1a")
		s.sees("Stopped")
		s.sees("PROMPT> ")
		s.eventually(func() bool { return state(pid) == "T" }, "stopped")
		s.types("fg\n")
		s.eventually(func() bool { return state(pid) != "T" }, "it goes on")
	}
	s.types("\x03")
	s.prompt("130")
	s.awaitDead(pid)
	s.quits()
}

// TestCommandOfAScriptReadsFromTheTerminal, and so does the script after it.
func TestCommandOfAScriptReadsFromTheTerminal(t *testing.T) {
	eachTool(t, func(s *shell) {
		s.script(`
./tool sh -c 'echo up > up; read line; echo "$line" > first; stty -echo < /dev/tty; stty echo < /dev/tty'
read line; echo "$line" > second; exit 5`)
		s.types("./script\n")
		s.content("up")
		s.types("one\n")
		require.Equal(s, "one", s.content("first"))
		s.types("two\n")
		require.Equal(s, "two", s.content("second"))
		s.prompt("5")
		s.quits()
	})
}

// TestCtrlZWhileACommandOfAScriptReads stops the script as well, and fg continues all of it.
func TestCtrlZWhileACommandOfAScriptReads(t *testing.T) {
	eachTool(t, ctrlZWhileACommandOfAScriptReads)
}

func ctrlZWhileACommandOfAScriptReads(s *shell) {
	s.Helper()
	s.script(`./tool sh -c 'echo $$ > pid; read line; echo "$line" > first'; exit 5`)
	s.types("./script\n")
	pid := s.pid("pid")
	s.eventually(func() bool { return state(pid) == "S" }, "it reads")
	s.types("\x1a")
	s.sees("Stopped")
	s.sees("PROMPT> ")
	s.eventually(func() bool { return state(pid) == "T" }, "stopped")
	s.types("fg\n")
	s.eventually(func() bool { return state(pid) != "T" }, "it goes on")
	s.types("one\n")
	require.Equal(s, "one", s.content("first"))
	s.prompt("5")
	s.quits()
}

// TestCtrlCWhileACommandOfAScriptReads ends the script.
func TestCtrlCWhileACommandOfAScriptReads(t *testing.T) {
	eachTool(t, ctrlCWhileACommandOfAScriptReads)
}

func ctrlCWhileACommandOfAScriptReads(s *shell) {
	s.Helper()
	s.script(`./tool sh -c 'echo $$ > pid; read line; echo "$line" > first'; echo after > after`)
	s.types("./script\n")
	pid := s.pid("pid")
	s.eventually(func() bool { return state(pid) == "S" }, "it reads")
	s.types("\x03")
	s.prompt("130")
	require.NoFileExists(s, s.file("after"))
	s.quits()
}

// TestBackgroundJobThatWantsTheTerminal is stopped, and reads once it is in the foreground.
func TestBackgroundJobThatWantsTheTerminal(t *testing.T) {
	eachTool(t, func(s *shell) {
		s.types("./tool sh -c 'echo $$ > pid; read line; echo \"$line\" > line; exit 6' &\n")
		pid := s.pid("pid")
		require.Eventually(s, func() bool {
			s.types("jobs\n")
			return strings.Contains(s.screen.String(), "Stopped")
		}, patience, 100*time.Millisecond)
		s.eventually(func() bool { return state(pid) == "T" }, "stopped")
		s.types("fg\n")
		s.eventually(func() bool { return state(pid) == "S" }, "it reads")
		s.types("typed\n")
		require.Equal(s, "typed", s.content("line"))
		s.prompt("6")
		s.quits()
	})
}

// TestStoppedCommandOfAScript requires that a stopped command keeps its lock until it is continued.
func TestStoppedCommandOfAScript(t *testing.T) {
	eachTool(t, func(s *shell) {
		s.script(`./tool sh -c 'echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done'; exit 5`)
		s.types("./script\n")
		pid := s.pid("pid")
		require.NoError(s, syscall.Kill(pid, syscall.SIGSTOP))
		s.eventually(func() bool { return state(pid) == "T" }, "stopped")
		require.NoError(s, os.WriteFile(s.file("go"), nil, 0o600))
		time.Sleep(300 * time.Millisecond) //nolint:forbidigo // nothing else stops
		require.NoError(s, syscall.Kill(pid, syscall.SIGCONT))
		s.prompt("5")
		s.quits()
	})
}

// TestZkrDiesOfTheSignalOfTheCommand includes signals that Go's runtime handles.
func TestZkrDiesOfTheSignalOfTheCommand(t *testing.T) {
	for _, s := range []syscall.Signal{
		syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGTRAP,
	} {
		t.Run(s.String(), func(t *testing.T) {
			w := newWorld(t)
			r := w.start("lock", "/l", "--", "sh", "-c", "ulimit -c 0; kill -"+itoa(int64(s))+" $$")
			r.await()
			status := r.cmd.ProcessState.Sys().(syscall.WaitStatus)
			require.True(t, status.Signaled(), r.stderr.String())
			require.Equal(t, s, status.Signal())
			require.Empty(t, r.stderr.String())
			require.Empty(t, w.server.Children("/l"))
		})
	}
}
