//go:build linux

package guard

import (
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/child"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/process"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/watchdog"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The watchdog is this program again.
func init() { //nolint:gochecknoinits // before the tests
	if watchdog.IsWatchdog(os.Args) {
		os.Exit(watchdog.Main())
	}
}

// A panic ends the process by way of deferred calls, which release the lock. So the command has to be dead before them.
func TestPanicKillsTheCommandFirst(t *testing.T) {
	runtime.LockOSThread() // stays locked, because the kernel kills the command with the thread
	srv := zktest.NewServer(t)
	client, err := recipes.Connect(t.Context(), []string{srv.Addr()}, recipes.WithLogger(slog.New(slog.DiscardHandler)))
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	lock, err := mutex.New(client, "/lock")
	require.NoError(t, err)
	lease, err := lock.Acquire(t.Context())
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "pid")
	pids := make(chan int, 1)
	signals := NewSignals()
	config := Config{
		Lease: lease, SessionTimeout: client.SessionTimeout, Grace: time.Second, Signals: signals,
		Say: func(format string, _ ...any) { panic(format) },
	}
	go func() { // ends with the command
		pid := 0
		for pid == 0 {
			text, _ := os.ReadFile(file)
			pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
			runtime.Gosched()
		}
		pids <- pid
		srv.Delete(lease.Path())
	}()
	require.PanicsWithValue(t, "lock %s: %s: %s", func() {
		_, _ = Run(config, child.Command{Path: "/bin/sh", Args: []string{"sh", "-c", `trap "" TERM; echo $$ > "$0"; while :; do sleep 0.05; done`, file}, Env: os.Environ()})
	})
	require.False(t, process.IsAlive(<-pids))
}
