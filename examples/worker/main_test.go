package main

import (
	"bytes"
	"context"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// TestMain makes the test binary pass for the program when startProcess runs it again as a
// worker.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		main()
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // for the workers: else the race detector makes each stay for a second
	goleak.VerifyTestMain(m)
}

// output collects the output of this process and of its workers.
type output struct {
	mu  sync.Mutex // protects buf
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// command runs the program in this process, and its workers in other processes.
func command(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs output
	status = run(t.Context(), args, strings.NewReader(""), &out, &errs)
	return status, out.String(), errs.String()
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return lines[len(lines)-1]
}

func TestUsage(t *testing.T) {
	t.Setenv("ZKRECIPES_SERVERS", "")
	t.Setenv("WORKER_DB", "")
	for _, tt := range []struct {
		name   string
		args   []string
		status int
		says   string
	}{
		{"help", []string{"-h"}, exitSound, "-stay"},
		{"help of serve", []string{"serve", "-h"}, exitSound, "-until-eof"},
		{"a minute is what a worker waits", []string{"serve", "-h"}, exitSound, "run the job every so often (default 1m0s)"},
		{"no ZooKeeper to serve with", []string{"serve", "-db", "worker.db"}, exitUsage, "serve needs ZooKeeper"},
		{"no database to serve", []string{"serve", "-zk", "zk1:2181"}, exitUsage, "serve needs -db"},
		{"unknown flag", []string{"-leaders"}, exitUsage, "-leaders"},
		{"stray argument", []string{"now"}, exitUsage, `unexpected argument "now"`},
		{"never", []string{"-every", "0"}, exitUsage, "-every"},
		{"no time between runs", []string{"-every", "1s", "-work", "600ms"}, exitUsage, "-work"},
		{"nameless", []string{"serve", "-zk", "zk1:2181", "-db", "worker.db", "-id", ""}, exitUsage, "-id"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, stdout, stderr := command(t, tt.args...)
			require.Equal(t, tt.status, status, stderr)
			require.Contains(t, stderr, tt.says)
			require.Empty(t, stdout)
		})
	}
}

func TestInterruptedDemoEndsWithoutReport(t *testing.T) {
	t.Setenv("ZKRECIPES_SERVERS", "")
	t.Setenv("WORKER_DB", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs output
	status := run(ctx, nil, strings.NewReader(""), &out, &errs)
	require.Equal(t, exitDamaged, status)
	require.NotContains(t, out.String(), "worker: ")
}

func TestWorkerThatDoesNotComeUpIsReported(t *testing.T) {
	o := options{db: t.TempDir() + "/no/such/folder/worker.db", every: 1, sessionTimeout: 1}
	var errs output
	_, err := startProcess(t.Context(), o, "worker-1", newJournal(), &errs)
	require.ErrorContains(t, err, "worker-1 did not come up")
	require.ErrorContains(t, err, "exit status")
	require.NotEmpty(t, errs.String())
}
