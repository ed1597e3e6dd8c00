//go:build linux

package main_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.yaml.in/yaml/v3"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// patience is how long tests wait for something that has to happen.
const patience = 30 * time.Second

var binary string // zkr, built once

func TestMain(m *testing.M) { os.Exit(buildAndRun(m)) }

func buildAndRun(m *testing.M) int {
	dir, err := os.MkdirTemp("", "zkr")
	if err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	binary = filepath.Join(dir, "zkr")
	if err := buildRelease(binary); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Under nohup, zkr would inherit that hangups are ignored.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// releaseVersion is the version linked into the binary under test.
const releaseVersion = "v1.2.3-test"

// buildRelease builds zkr with the settings of a release: the environment, flags and linker flags in .goreleaser.yaml. In
// particular, the versions of the modules are from zkr's go.mod, not from the workspace.
func buildRelease(binary string) error {
	text, err := os.ReadFile("../../.goreleaser.yaml")
	if err != nil {
		return err
	}
	var release struct {
		Builds []struct{ Env, Flags, Ldflags []string }
	}
	if err := yaml.Unmarshal(text, &release); err != nil {
		return err
	}
	settings := release.Builds[0]
	linked := strings.ReplaceAll(strings.Join(settings.Ldflags, " "), "{{ .Tag }}", releaseVersion)
	build := exec.Command("go", append(append([]string{"build"}, settings.Flags...), "-ldflags", linked, "-o", binary, ".")...)
	build.Env = append(os.Environ(), settings.Env...)
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// world is a server and a folder for one test.
type world struct {
	*testing.T
	server *zktest.Server
	dir    string
	env    []string // of zkr, besides that of the test
}

func newWorld(t *testing.T) *world {
	t.Helper()
	t.Parallel()
	return newLoneWorld(t)
}

// newLoneWorld is newWorld for a test that runs alone.
func newLoneWorld(t *testing.T) *world {
	t.Helper()
	server := zktest.NewServer(t)
	return &world{t, server, t.TempDir(), []string{"ZKR_SERVERS=" + server.Addr(), "ZKR_SESSION_TIMEOUT=30s", "ZKR_NAMESPACE="}}
}

// buffer is a writer that may be read at the same time.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// run is a zkr that was started.
type run struct {
	w      *world
	cmd    *exec.Cmd
	stdout buffer
	stderr buffer
	ended  chan struct{}
}

// start starts zkr. It is killed at the end of the test.
func (w *world) start(args ...string) *run {
	w.Helper()
	return w.startWith(func(*exec.Cmd) {}, args...)
}

func (w *world) startWith(change func(*exec.Cmd), args ...string) *run {
	w.Helper()
	r := &run{w: w, cmd: exec.Command(binary, args...), ended: make(chan struct{})}
	r.cmd.Dir, r.cmd.Env = w.dir, append(os.Environ(), w.env...)
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	change(r.cmd)
	require.NoError(w, r.cmd.Start())
	go func() { // ends with the process
		_ = r.cmd.Wait() // the code is read from the state
		close(r.ended)
	}()
	w.Cleanup(func() {
		_ = r.cmd.Process.Kill()
		r.await()
	})
	return r
}

// await waits for the end of the process and of all others that share its output.
func (r *run) await() {
	r.w.Helper()
	select {
	case <-r.ended:
	case <-time.After(patience):
		require.FailNow(r.w, "zkr does not end", "%v\n%s%s", r.cmd.Args, r.stdout.String(), r.stderr.String())
	}
}

// code waits for the end and returns the code as a shell has it: 128+n for an end by signal n.
func (r *run) code() int {
	r.w.Helper()
	r.await()
	if status := r.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return r.cmd.ProcessState.ExitCode()
}

func (r *run) signal(s syscall.Signal) {
	r.w.Helper()
	require.NoError(r.w, r.cmd.Process.Signal(s))
}

// result has the output and the exit code of an ended zkr.
type result struct {
	code           int
	stdout, stderr string
}

func (w *world) run(args ...string) result {
	w.Helper()
	r := w.start(args...)
	code := r.code()
	return result{code, r.stdout.String(), r.stderr.String()}
}

// eventually waits for a condition.
func (w *world) eventually(condition func() bool, what string) {
	w.Helper()
	require.Eventually(w, condition, patience, 5*time.Millisecond, what)
}

func (w *world) file(name string) string { return filepath.Join(w.dir, name) }

// content waits for a file with a whole line, and returns it without the last newline.
func (w *world) content(name string) (text string) {
	w.Helper()
	w.eventually(func() bool {
		content, err := os.ReadFile(w.file(name))
		text = strings.TrimSuffix(string(content), "\n")
		return err == nil && bytes.HasSuffix(content, []byte("\n"))
	}, name)
	return text
}

func (w *world) pid(name string) int {
	w.Helper()
	pid, err := strconv.Atoi(strings.TrimSpace(w.content(name)))
	require.NoError(w, err)
	return pid
}

func (w *world) awaitDead(pids ...int) {
	w.Helper()
	for _, pid := range pids {
		w.eventually(func() bool { return !isAlive(pid) }, fmt.Sprintf("process %d ends", pid))
	}
}

// client returns a client in this process.
func (w *world) client(opts ...recipes.Option) *recipes.Client {
	w.Helper()
	client, err := recipes.Connect(w.Context(), []string{w.server.Addr()}, append([]recipes.Option{recipes.WithSessionTimeout(time.Minute)}, opts...)...)
	require.NoError(w, err)
	w.Cleanup(func() { require.NoError(w, client.Close()) })
	return client
}

// hold acquires a lock in this process.
func (w *world) hold(path, id string) *recipes.Lease {
	w.Helper()
	return w.holdWith(w.client(), path, id)
}

func (w *world) holdWith(client *recipes.Client, path, id string) *recipes.Lease {
	w.Helper()
	lock, err := mutex.New(client, path, mutex.WithID(id))
	require.NoError(w, err)
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	defer cancel()
	lease, err := lock.Acquire(ctx)
	require.NoError(w, err)
	w.Cleanup(func() {
		if err := lease.Release(); err != nil && !errors.Is(err, recipes.ErrNotHeld) && lease.Context().Err() == nil {
			require.NoError(w, err)
		}
	})
	return lease
}

// awaitContenders waits until a lock has n znodes, and returns their paths.
func (w *world) awaitContenders(path string, n int) (znodes []string) {
	w.Helper()
	w.eventually(func() bool { return len(w.server.Children(path)) == n }, fmt.Sprintf("%d contenders at %s", n, path))
	for _, name := range w.server.Children(path) {
		znodes = append(znodes, path+"/"+name)
	}
	return znodes
}

// owner returns the session of the only contender at /l.
func (w *world) owner() int64 {
	w.Helper()
	_, stat, ok := w.server.Get(w.awaitContenders("/l", 1)[0])
	require.True(w, ok)
	return stat.EphemeralOwner
}
