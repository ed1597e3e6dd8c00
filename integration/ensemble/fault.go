package ensemble

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"
	tcexec "github.com/testcontainers/testcontainers-go/exec"
)

// Kill ends node i at once (SIGKILL) and returns when it is down. Its data stays for StartNode.
func (e *Ensemble) Kill(ctx context.Context, i int) error {
	return e.fault("kill", i, func(n *node) error {
		if _, err := e.engine.docker.ContainerKill(ctx, n.container.ID, client.ContainerKillOptions{Signal: "KILL"}); err != nil {
			return err
		}
		n.setState(down)
		wait := e.engine.docker.ContainerWait(ctx, n.container.ID, client.ContainerWaitOptions{Condition: container.WaitConditionNotRunning})
		select {
		case <-wait.Result:
			return nil
		case err := <-wait.Error:
			return err
		}
	})
}

// Stop shuts node i down in order (SIGTERM) and returns when it is down.
func (e *Ensemble) Stop(ctx context.Context, i int) error {
	return e.fault("stop", i, func(n *node) error {
		n.setState(down)
		grace := 10 * time.Second
		return n.container.Stop(ctx, &grace)
	})
}

// StartNode starts node i again after Kill or Stop, at the address and with the data it had. It does not wait for the
// server to take clients, which it may not do while others are down; see WaitServing.
func (e *Ensemble) StartNode(ctx context.Context, i int) error {
	return e.fault("start", i, func(n *node) error {
		if _, err := e.engine.docker.ContainerStart(ctx, n.container.ID, client.ContainerStartOptions{}); err != nil {
			return err
		}
		n.setState(running)
		return nil
	})
}

// Pause freezes node i: its connections stay open and nothing answers.
func (e *Ensemble) Pause(ctx context.Context, i int) error {
	return e.fault("pause", i, func(n *node) error {
		pause := func() (err error) {
			_, err = e.engine.docker.ContainerPause(ctx, n.container.ID, client.ContainerPauseOptions{})
			return err
		}
		err := pause()
		// On a busy machine, runc fails for threads that do not stop soon.
		for tries := 1; tries < 40 && err != nil && strings.Contains(err.Error(), "unable to freeze"); tries++ {
			select {
			case <-time.After(250 * time.Millisecond):
			case <-ctx.Done():
				return ctx.Err()
			}
			err = pause()
		}
		if err != nil {
			return err
		}
		n.setState(paused)
		return nil
	})
}

// Unpause continues a paused node.
func (e *Ensemble) Unpause(ctx context.Context, i int) error {
	return e.fault("unpause", i, func(n *node) error {
		if _, err := e.engine.docker.ContainerUnpause(ctx, n.container.ID, client.ContainerUnpauseOptions{}); err != nil {
			return err
		}
		n.setState(running)
		return nil
	})
}

// Exec runs a command as root inside node i and returns its output, standard error included. A status other than 0 is an
// error. Nodes have NET_ADMIN, so iptables works where the image has it.
func (e *Ensemble) Exec(ctx context.Context, i int, cmd ...string) (string, error) {
	var output string
	err := e.fault("exec", i, func(n *node) error {
		status, reader, err := n.container.Exec(ctx, cmd, tcexec.Multiplexed(), tcexec.WithUser("root"))
		if err != nil {
			return err
		}
		all, err := io.ReadAll(reader)
		if err != nil {
			return err
		}
		output = string(all)
		if status != 0 {
			return fmt.Errorf("%v: status %d: %s", cmd, status, output)
		}
		return nil
	})
	return output, err
}

func (e *Ensemble) fault(what string, i int, do func(*node) error) error {
	if e.external != nil {
		return fmt.Errorf("ensemble: %s: %w", what, ErrExternal)
	}
	if err := do(e.nodes[i]); err != nil {
		return fmt.Errorf("ensemble: %s node %d: %w", what, i, err)
	}
	return nil
}
