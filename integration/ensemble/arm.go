package ensemble

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/moby/moby/client"
)

// Arm gets a shell ready inside node i that runs the script as root when fire is called: within a few milliseconds, where
// Exec needs a hundred to start anything. fire returns when the script is done; it may be called once, and has to be,
// or the shell waits until the node ends. ctx bounds both.
func (e *Ensemble) Arm(ctx context.Context, i int, script string) (fire func() error, err error) {
	const ready, done = "armed", "done"
	err = e.fault("arm", i, func(n *node) error {
		docker := e.engine.docker
		made, err := docker.ExecCreate(ctx, n.container.ID, client.ExecCreateOptions{
			User: "root", AttachStdin: true, AttachStdout: true, AttachStderr: true,
			Cmd: []string{"sh", "-c", fmt.Sprintf("echo %s; read go; set -e\n%s\necho %s", ready, script, done)},
		})
		if err != nil {
			return err
		}
		shell, err := docker.ExecAttach(ctx, made.ID, client.ExecAttachOptions{})
		if err != nil {
			return err
		}
		if err := hears(ctx, shell.HijackedResponse, ready); err != nil {
			shell.Close()
			return err
		}
		fire = func() error {
			return e.fault("fire", i, func(*node) error {
				defer shell.Close()
				if _, err := fmt.Fprintln(shell.Conn); err != nil {
					return err
				}
				return hears(ctx, shell.HijackedResponse, done)
			})
		}
		return nil
	})
	return fire, err
}

// hears waits until a shell prints a word at the end of a line. If the shell ends first, its other output is the error.
func hears(ctx context.Context, shell client.HijackedResponse, word string) error {
	stop := context.AfterFunc(ctx, shell.Close)
	defer stop()
	var said strings.Builder
	for {
		line, err := shell.Reader.ReadString('\n')
		said.WriteString(line)
		if strings.HasSuffix(line, word+"\n") { // behind the header of the stream
			return nil
		}
		if err != nil {
			return fmt.Errorf("a shell says %q and no %q: %w", said.String(), word, errors.Join(err, context.Cause(ctx)))
		}
	}
}
