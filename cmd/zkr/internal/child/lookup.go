//go:build linux

package child

import (
	"bufio"
	"debug/elf"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/process"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// LookUp returns the file of a command. The error has a shell's exit code: 127 if the file does not exist, 126 if it
// can't be executed. Call LookUp from the main thread.
func LookUp(command []string) (path string, err error) {
	name := command[0]
	path, err = find(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound):
		return "", exit.Errorf(exit.NotFound, "%s: command not found", name)
	case err != nil:
		return "", exit.Errorf(exit.NotExecutable, "%s: %w", name, reason(err))
	}
	err = checkExecutable(path)
	if err == nil {
		err = tryToExecute(path, command)
	}
	if err != nil {
		return "", exit.Errorf(exit.NotExecutable, "%s: %w", name, err)
	}
	return path, nil
}

// tryToExecute lets the kernel execute a command, and kills the process before its first instruction, where a traced
// process stops. Only the kernel knows about other machines, registered interpreters and file systems mounted noexec.
// Where tracing is forbidden, the answer is nil.
func tryToExecute(path string, command []string) error {
	p, err := process.Start(path, command, &os.ProcAttr{
		Sys: &syscall.SysProcAttr{Ptrace: true, Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	switch {
	case err == nil:
		_ = p.Kill()
		_, _ = p.Wait() // it was killed
		process.Reaped(p.Pid)
		return nil
	case errors.Is(err, unix.ENOEXEC):
		return errors.New(unix.ENOEXEC.Error() + builtFor(path))
	case errors.Is(err, fs.ErrNotExist):
		return errors.New("its interpreter does not exist")
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.E2BIG), errors.Is(err, unix.ELIBBAD), errors.Is(err, unix.ETXTBSY):
		return reason(err)
	default:
		return nil
	}
}

// builtFor names the machine for which a program was built, "" if it is no program.
func builtFor(path string) string {
	file, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	return ": built for " + file.Machine.String()
}

// find looks in PATH for a name without a slash. It also finds files that can't be executed.
func find(name string) (string, error) {
	if name == "" {
		return "", fs.ErrNotExist
	}
	if strings.Contains(name, "/") {
		_, err := os.Stat(name)
		return name, err
	}
	var refused error
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path := filepath.Join(dir, name)
		if dir == "" || dir == "." {
			path = "./" + name
		}
		info, err := os.Stat(path)
		switch {
		case err != nil || info.IsDir():
			continue
		case unix.Access(path, unix.X_OK) == nil:
			return path, nil
		case refused == nil:
			refused = fs.ErrPermission
		}
	}
	if refused != nil {
		return "", refused
	}
	return "", exec.ErrNotFound
}

func checkExecutable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return reason(err)
	case info.IsDir():
		return unix.EISDIR
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return err
	}
	return checkFormat(path)
}

// checkFormat refuses files that the kernel would refuse after the lock is acquired: a text without "#!" in its first
// line, and a script whose interpreter does not exist. It accepts an unreadable file.
func checkFormat(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return nil // a program may be executable without being readable
	}
	defer func() { _ = file.Close() }()
	start, _ := bufio.NewReader(file).Peek(256)
	line, isScript := strings.CutPrefix(string(start), "#!")
	switch {
	case isScript:
		line, _, _ = strings.Cut(line, "\n")
		if strings.HasSuffix(line, "\r") {
			return errors.New("its first line ends with CR LF, and the kernel takes the CR as part of the interpreter's name or argument")
		}
		fields := strings.Fields(line)
		if len(fields) == 0 {
			return unix.ENOEXEC
		}
		if err := unix.Access(fields[0], unix.X_OK); err != nil {
			return errors.New(fields[0] + ": bad interpreter: " + err.Error())
		}
		return nil
	case len(start) == 0 || isText(start):
		return errors.New("exec format error: a script needs #! in its first line, because no shell runs it")
	default:
		return nil
	}
}

// isText reports whether a file begins like a text, which no kernel executes without "#!".
func isText(start []byte) bool {
	for _, b := range start {
		if b < '\t' {
			return false
		}
	}
	return true
}

// reason is an error without the operation and the path.
func reason(err error) error {
	if e, ok := zkutil.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
