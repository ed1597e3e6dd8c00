// Night plays nine incidents on three servers in containers, and prints an operator's view of each: the log lines, the metrics
// and the output of zkr at each moment. docs/evidence/incidents.md has excerpts.
//
//	go run ./integration/cmd/night
//
// Three workers of examples/worker take part. The line of web-2 is behind a proxy, which can cut it. The night has a rolling
// restart of the servers, a silent line, a process that is stopped for longer than its session, a holder that does not release,
// a lost quorum, slow disks, a hung server, a leader whose work does not return, and servers that are restored from a backup.
// -acts plays some of them. It exits with 1 if an expected event does not happen within two minutes.
//
// A Prometheus watches, with the alerts of contrib/otelzkrecipes. The alert about a missing leader has to fire when the quorum
// is lost, and the alert about a lost lease when the disks are slow. At the end each query of the Grafana board has to have
// data. Night needs Docker, gcc, sqlite3 and Debian's package prometheus.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/integration/slowdisk"
)

const (
	sessionTimeout = 10 * time.Second
	every          = 5 * time.Second         // a run of the job
	work           = 1500 * time.Millisecond // of a run
	patience       = 2 * time.Minute         // with what has to happen
)

func main() {
	bin := flag.String("bin", "", "`folder` with the programs worker and zkr; default: they are built")
	acts := flag.String("acts", "", "`names` of the acts to play, separated by commas; default: all")
	contrib := flag.String("contrib", "contrib/otelzkrecipes", "`folder` with the alerts and the board")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := play(ctx, *bin, *contrib, *acts)
	if err != nil {
		fmt.Fprintln(os.Stderr, "night:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

// play plays a night, or is a process of one.
func play(ctx context.Context, bin, contrib, acts string) error {
	if args := flag.Args(); len(args) == 3 && args[0] == "hang" {
		return hang(ctx, args[1], args[2])
	}
	return run(ctx, bin, contrib, acts)
}

// night is the stage: servers, workers, and the programs.
type night struct {
	servers *ensemble.Ensemble
	lines   []*faultproxy.Proxy // of web-2, one to each server
	bin     string              // folder of the programs
	dir     string              // folder of the database
	began   time.Time
	workers []*worker
	stock   *worker // whose lock is on the board

	prometheus *watcher
}

func run(ctx context.Context, bin, contrib, acts string) error {
	dir, err := os.MkdirTemp("", "night-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if bin == "" {
		bin = dir
		build := exec.CommandContext(ctx, "go", "build", "-o", dir+"/", "github.com/zkrecipes/zkrecipes/examples/worker", "github.com/zkrecipes/zkrecipes/cmd/zkr")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build: %w: %s", err, out)
		}
	}
	cfg := ensemble.Config{Nodes: 3, Private: true}
	if err := slowdisk.Install(ctx, &cfg); err != nil {
		return err
	}
	servers, err := ensemble.Start(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { _ = servers.Close() }()
	n := &night{servers: servers, bin: bin, dir: dir}
	for _, server := range servers.Servers() {
		line, err := faultproxy.Start(server)
		if err != nil {
			return err
		}
		defer line.Close()
		n.lines = append(n.lines, line)
	}
	defer n.stopWorkers()
	if err := n.startWorkers(ctx); err != nil {
		return err
	}
	if n.stock, err = n.startHang(ctx, stockID); err != nil {
		return err
	}
	defer func() {
		_ = n.stock.cmd.Process.Kill()
		_ = n.stock.cmd.Wait()
	}()
	if err := n.stock.await(ctx, "serving"); err != nil {
		return err
	}
	if n.prometheus, err = startPrometheus(ctx, dir, contrib, append(slices.Clone(n.workers), n.stock)); err != nil {
		return fmt.Errorf("prometheus: %w", err)
	}
	defer n.prometheus.stop()
	if err := n.servers.Backup(ctx); err != nil { // for the last act
		return err
	}
	for _, act := range []struct {
		name string
		play func(context.Context) error
	}{
		{"evening", n.evening},
		{"restart", n.rollingRestart},
		{"line", n.cutLine},
		{"pause", n.pausedProcess},
		{"holder", n.stuckHolder},
		{"quorum", n.quorumLost},
		{"disk", n.slowDisk},
		{"hung", n.hungServer},
		{"work", n.workGoesOn},
		{"restore", n.restored},
		{"morning", n.morning},
	} {
		if acts != "" && !slices.Contains(strings.Split(acts, ","), act.name) {
			continue
		}
		if err := act.play(ctx); err != nil {
			return fmt.Errorf("%s: %w", act.name, err)
		}
	}
	return n.prometheus.askBoard(ctx)
}

// startWorkers starts web-2 first, so that it leads.
func (n *night) startWorkers(ctx context.Context) error {
	direct, cut := strings.Join(n.servers.Servers(), ","), make([]string, len(n.lines))
	for i, line := range n.lines {
		cut[i] = line.Addr()
	}
	n.began = time.Now()
	for _, w := range []struct{ id, servers string }{{"web-2", strings.Join(cut, ",")}, {"web-1", direct}, {"web-3", direct}} {
		started, err := n.startWorker(ctx, w.id, w.servers)
		if err != nil {
			return err
		}
		n.workers = append(n.workers, started)
		if err := started.await(ctx, "serving"); err != nil {
			return err
		}
	}
	return nil
}

func (n *night) stopWorkers() {
	for _, w := range n.workers {
		_ = w.cmd.Process.Kill()
		_ = w.cmd.Wait()
	}
}

// title begins an act.
func (n *night) title(format string, args ...any) {
	fmt.Printf("\n=== %5.1fs  %s\n", time.Since(n.began).Seconds(), fmt.Sprintf(format, args...))
}

// zkr runs the command line, and prints its output and exit code.
func (n *night) zkr(ctx context.Context, args ...string) {
	n.finish(n.beginZkr(ctx, args...))
}

// command is a zkr that runs.
type command struct {
	text string
	cmd  *exec.Cmd
	out  strings.Builder
}

func (n *night) beginZkr(ctx context.Context, args ...string) *command {
	c := &command{text: "zkr " + strings.Join(args, " "), cmd: exec.CommandContext(ctx, filepath.Join(n.bin, "zkr"), args...)}
	c.cmd.Env = append(os.Environ(), "ZKR_SERVERS="+strings.Join(n.servers.Servers(), ","), "ZKR_SESSION_TIMEOUT="+sessionTimeout.String())
	c.cmd.Stdout, c.cmd.Stderr = &c.out, &c.out
	if err := c.cmd.Start(); err != nil {
		c.out.WriteString(err.Error())
	}
	return c
}

// finish waits for a command, and shows it.
func (n *night) finish(c *command) {
	_ = c.cmd.Wait()
	fmt.Printf("$ %s\n%s[exit %d]\n", c.text, c.out.String(), c.cmd.ProcessState.ExitCode())
}
