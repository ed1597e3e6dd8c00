package mariadb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Database is the one that the server has.
const Database = "stock"

// Server is a running MariaDB.
type Server struct {
	dir    string
	log    bytes.Buffer // of mariadbd; to be read once it has ended
	cmd    *exec.Cmd
	cancel context.CancelFunc
	exited chan struct{} // closed by the goroutine that waits for cmd
	err    error         // of cmd.Wait, set before exited is closed
}

// Start returns once the server answers, which takes some seconds. It needs
// mariadbd, mariadb-install-db and mariadb on the PATH: the package mariadb-server
// of Debian, where /usr/sbin holds the first. Call Stop when done.
func Start(ctx context.Context) (*Server, error) {
	// Not a test's own directory: the name of a unix socket is short.
	dir, err := os.MkdirTemp("", "mariadb-")
	if err != nil {
		return nil, err
	}
	s, err := start(ctx, dir)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("mariadb: %w", err), os.RemoveAll(dir))
	}
	return s, nil
}

func start(ctx context.Context, dir string) (*Server, error) {
	me, err := user.Current()
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	install := exec.CommandContext(ctx, "mariadb-install-db", "--no-defaults", "--datadir="+data,
		"--user="+me.Username, "--auth-root-authentication-method=normal", "--skip-test-db")
	if out, err := install.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("install: %w\n%s", err, out)
	}

	// The server outlives ctx: Stop ends it.
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s := &Server{dir: dir, cancel: cancel, exited: make(chan struct{})}
	s.cmd = exec.CommandContext(running, "mariadbd", "--no-defaults", "--datadir="+data,
		"--user="+me.Username, "--socket="+s.socket(), "--skip-networking",
		"--pid-file="+filepath.Join(dir, "pid"), "--innodb-flush-log-at-trx-commit=1")
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGTERM) }
	s.cmd.WaitDelay = 20 * time.Second
	if err := s.cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	// Ends with the server; halt waits for it.
	go func() {
		s.err = s.cmd.Wait()
		close(s.exited)
	}()

	if err := s.prepare(ctx); err != nil {
		s.halt()
		return nil, fmt.Errorf("%w\n%s", err, s.log.Bytes())
	}
	return s, nil
}

func (s *Server) socket() string { return filepath.Join(s.dir, "socket") }

// DSN names the database for go-sql-driver.
func (s *Server) DSN() string {
	return "root@unix(" + s.socket() + ")/" + Database
}

// prepare waits until the server answers, and makes the database.
func (s *Server) prepare(ctx context.Context) error {
	create := func() (struct{}, error) {
		select {
		case <-s.exited:
			return struct{}{}, backoff.Permanent(fmt.Errorf("server ended: %w", s.err))
		default:
		}
		out, err := exec.CommandContext(ctx, "mariadb", "--no-defaults", "--socket="+s.socket(), "--user=root",
			"--execute=CREATE DATABASE "+Database).CombinedOutput()
		if err != nil {
			return struct{}{}, fmt.Errorf("%w\n%s", err, out)
		}
		return struct{}{}, nil
	}
	_, err := backoff.Retry(ctx, create,
		backoff.WithBackOff(backoff.NewConstantBackOff(100*time.Millisecond)),
		backoff.WithMaxElapsedTime(time.Minute))
	return err
}

// halt ends the server and waits for it.
func (s *Server) halt() {
	s.cancel()
	<-s.exited
}

// Stop ends the server and removes its directory. It must be called once.
func (s *Server) Stop() error {
	s.halt()
	err := s.err
	if errors.Is(err, context.Canceled) { // it ended well, because it was asked to
		err = nil
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
