package main

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// TestMain makes the test binary pass for the program when startProcess runs it
// again as a service.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// output collects the output of this process and of its services.
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

// command runs the program in this process, and its services in other processes.
func command(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs output
	status = run(t.Context(), args, strings.NewReader(""), &out, &errs)
	return status, out.String(), errs.String()
}

// withoutSlowness leaves out the warnings of a hold of more than a second and of a wait of more than a minute, which a busy machine can cause.
func withoutSlowness(stderr string) string {
	return regexp.MustCompile(`(?m)^.* msg="(waiting for a lock that the same client holds|slow wait)" .*\n`).ReplaceAllString(stderr, "")
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	return lines[len(lines)-1]
}

func TestUsage(t *testing.T) {
	t.Setenv("ZKRECIPES_SERVERS", "")
	t.Setenv("STOCK_DB", "")
	for _, tt := range []struct {
		name   string
		args   []string
		status int
		says   string
	}{
		{"help", []string{"-h"}, exitSound, "number of buyers"},
		{"help of serve", []string{"serve", "-h"}, exitSound, "-until-eof"},
		{"no ZooKeeper to serve with", []string{"serve", "-db", "stock.db"}, exitUsage, "serve needs ZooKeeper"},
		{"no database to serve", []string{"serve", "-lock=false"}, exitUsage, "serve needs -db"},
		{"unknown flag", []string{"-locks"}, exitUsage, "-locks"},
		{"stray argument", []string{"-lock=false", "now"}, exitUsage, `unexpected argument "now"`},
		{"no buyers", []string{"-lock=false", "-buyers", "0"}, exitUsage, "-buyers"},
		{"an empty basket", []string{"-basket", "0"}, exitUsage, "-basket must be 1 to 50"},
		{"a basket and cohorts", []string{"-basket", "2", "-cohort"}, exitUsage, "and 1 with -cohort"},
		{"no patience", []string{"-lock=false", "-patience", "0"}, exitUsage, "-patience"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			status, stdout, stderr := command(t, tt.args...)
			require.Equal(t, tt.status, status, stderr)
			require.Contains(t, stderr, tt.says)
			require.Empty(t, stdout)
		})
	}
}

const soldOut = "stock: sold 100, refused 1400, oversold 0, stock left 0"

// The demo, as in the README, with only this program.
func TestDemoSellsEachItemOnce(t *testing.T) {
	t.Setenv("ZKRECIPES_SERVERS", "")
	t.Setenv("STOCK_DB", "")
	t.Setenv("TMPDIR", t.TempDir())

	status, stdout, stderr := command(t)
	require.Equal(t, exitSound, status, stderr)
	require.Empty(t, withoutSlowness(stderr))
	require.Contains(t, stdout, "A lock in an in-process ZooKeeper lets one purchase at a time")
	require.Contains(t, stdout, "1000 of 1500 buyers answered\n")
	require.Contains(t, stdout, "\nOK: nothing oversold, nothing lost. 100 of 100 items were sold")
	require.Equal(t, soldOut, lastLine(stdout))

	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left, "the temporary database is gone")
}

// Buyers of one process pass the lock on among themselves, with one token. Claim, read and write are as sound as
// without a cohort.
func TestDemoWithCohortsSellsEachItemOnce(t *testing.T) {
	t.Setenv("ZKRECIPES_SERVERS", "")
	t.Setenv("STOCK_DB", "")
	status, stdout, stderr := command(t, "-cohort", "-buyers", "600", "-items", "100", "-think", "500us")
	require.Equal(t, exitSound, status, stderr)
	require.Empty(t, withoutSlowness(stderr))
	require.Contains(t, stdout, "The buyers of one process form a cohort")
	require.Equal(t, "stock: sold 100, refused 500, oversold 0, stock left 0", lastLine(stdout))
}

// Each buyer wants one item of each of three goods, every second buyer in the opposite order.
func TestDemoWithBasketsSellsEachItemOnce(t *testing.T) {
	t.Setenv("ZKRECIPES_SERVERS", "")
	t.Setenv("STOCK_DB", "")
	status, stdout, stderr := command(t, "-basket", "3", "-buyers", "300", "-items", "50", "-think", "500us")
	require.Equal(t, exitSound, status, stderr)
	require.Empty(t, withoutSlowness(stderr))
	require.Contains(t, stdout, "one item of each of 3 goods, or none")
	require.Equal(t, "stock: sold 50, refused 250, oversold 0, stock left 0", lastLine(stdout))
}

// Three processes and a crowd without a lock show why the lock is needed.
func TestDemoWithoutLockOversells(t *testing.T) {
	t.Setenv("STOCK_DB", "")
	t.Setenv("TMPDIR", t.TempDir())

	status, stdout, stderr := command(t, "-lock=false", "-buyers", "300", "-items", "10", "-think", "20ms")
	require.Equal(t, exitDamaged, status, stderr)
	require.Empty(t, stderr)
	require.Contains(t, stdout, "\nNO LOCK: ")
	require.Contains(t, stdout, "\nNOT OK: ")
	require.Regexp(t, `^stock: sold [1-9]\d*, refused \d+, oversold [1-9]\d*, stock left \d+$`, lastLine(stdout))

	left, err := os.ReadDir(os.TempDir())
	require.NoError(t, err)
	require.Empty(t, left, "the temporary database is gone")
}

// One buyer after the other needs no lock, and the exit status says so.
func TestDemoOfPatientBuyersIsSound(t *testing.T) {
	t.Setenv("STOCK_DB", "")
	status, stdout, stderr := command(t, "-lock=false", "-at-once", "1", "-buyers", "20", "-items", "5", "-processes", "2", "-think", "0")
	require.Equal(t, exitSound, status, stderr)
	require.Equal(t, "stock: sold 5, refused 15, oversold 0, stock left 0", lastLine(stdout))
}

func TestInterruptedDemoEndsWithoutReport(t *testing.T) {
	t.Setenv("STOCK_DB", "")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs output
	status := run(ctx, []string{"-lock=false"}, strings.NewReader(""), &out, &errs)
	require.Equal(t, exitDamaged, status)
	require.Empty(t, out.String())
}

func TestServiceThatDoesNotComeUpIsReported(t *testing.T) {
	o := options{db: t.TempDir() + "/no/such/folder/stock.db"}
	var errs output
	_, err := startProcess(t.Context(), o, &errs)
	require.ErrorContains(t, err, "did not come up")
	require.ErrorContains(t, err, "exit status")
	require.NotEmpty(t, errs.String())
}
