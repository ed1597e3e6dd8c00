package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// process is a service in its own operating system process: this program, run again as `stock serve`.
type process struct {
	url  string
	cmd  *exec.Cmd
	quit func() // asks for the end
}

// startProcess returns once the service accepts requests. The service ends by stop, with ctx, or at any end of this
// process, when it reads end of file from a pipe that only this process holds open.
func startProcess(ctx context.Context, o options, stderr io.Writer) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ctx, quit := context.WithCancel(ctx)
	cmd := exec.CommandContext(ctx, self, "serve",
		"-listen", "127.0.0.1:0",
		"-until-eof",
		"-lock="+strconv.FormatBool(o.lock),
		"-cohort="+strconv.FormatBool(o.cohort),
		"-think", o.think.String(),
		"-patience", o.patience.String(),
		"-session-timeout", o.sessionTimeout.String(),
		"-log", o.logLevel.String(),
	)
	// In the environment, because arguments are there for everyone to read and
	// the DSN may hold a password.
	cmd.Env = append(os.Environ(), "STOCK_DB="+o.db, "ZKRECIPES_SERVERS="+o.zk)
	cmd.Stderr = stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		quit()
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		quit()
		return nil, err
	}
	cmd.Cancel = stdin.Close
	cmd.WaitDelay = 15 * time.Second // then it is killed
	if err := cmd.Start(); err != nil {
		quit()
		return nil, fmt.Errorf("service process: %w", err)
	}

	p := &process{cmd: cmd, quit: quit}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	url, ok := strings.CutPrefix(strings.TrimSpace(line), serveGreeting)
	if !ok {
		return nil, errors.Join(errors.New("service process did not come up"), err, p.stop())
	}
	p.url = url
	return p, nil
}

// stop asks the service to end, and waits until it does. Call it once.
func (p *process) stop() error {
	p.quit()
	err := p.cmd.Wait()
	// Wait reports the cancelled context when the process itself ended well.
	if errors.Is(err, context.Canceled) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("service process: %w", err)
	}
	return nil
}
