package child

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
)

// LookUp returns the file of a command. The error has the code that a shell would exit with: 127 if
// there is no such file, 126 if it can't be executed.
func LookUp(name string) (path string, err error) {
	path, err = find(name)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound):
		return "", exit.Errorf(exit.NotFound, "%s: command not found", name)
	case err != nil:
		return "", exit.Errorf(exit.NotExecutable, "%s: %w", name, reason(err))
	}
	if err := checkExecutable(path); err != nil {
		return "", exit.Errorf(exit.NotExecutable, "%s: %w", name, err)
	}
	return path, nil
}

// find looks in PATH for a name without a slash, and finds files there that can't be executed as well.
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

// checkFormat refuses what the kernel would refuse after the lock was acquired: a text without "#!" in its
// first line, and one whose interpreter does not exist. A file that can't be read is not refused.
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
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
