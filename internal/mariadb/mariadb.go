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

// Database is the name of the server's only database.
const Database = "stock"

// Server is a running MariaDB.
type Server struct {
	dir    string
	log    bytes.Buffer // output of mariadbd; read only after mariadbd has exited
	cmd    *exec.Cmd
	cancel context.CancelFunc
	exited chan struct{} // closed by the goroutine that waits for cmd
	err    error         // result of cmd.Wait, set before exited is closed
}

// Start returns once the server answers, which takes some seconds. It needs mariadbd,
// mariadb-install-db and mariadb on the PATH: install Debian's package mariadb-server, which has
// mariadbd in /usr/sbin. Call Stop when done.
func Start(ctx context.Context) (*Server, error) {
	// The test's own directory won't do, because the path of a unix socket must be short.
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

	// The server outlives ctx: Stop ends the server.
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
	// ends with the server; halt waits for the goroutine
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

// DSN returns the database's data source name for go-sql-driver.
func (s *Server) DSN() string {
	return "root@unix(" + s.socket() + ")/" + Database
}

// prepare waits until the server answers, and creates the database.
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

// halt stops the server and waits for its exit.
func (s *Server) halt() {
	s.cancel()
	<-s.exited
}

// Stop stops the server and removes its directory. It must be called once.
func (s *Server) Stop() error {
	s.halt()
	err := s.err
	if errors.Is(err, context.Canceled) { // the server exited normally, on request
		err = nil
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
