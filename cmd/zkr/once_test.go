//go:build linux

package main_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/once"
)

// Hosts run the same crontab. One host runs the command, and the others name that host.
func TestOnceRunsOncePerOccurrence(t *testing.T) {
	w := newWorld(t)
	tick := func(id, at string) *run {
		return w.start("once", "--id", id, "--at", at, "/jobs/report", "--", "sh", "-c", "echo $ZKR_FENCING_TOKEN >> runs; sleep 0.1")
	}
	for _, at := range []string{"2026-11-26T03:00", "2026-11-26T03:01"} {
		hosts := []*run{tick("web-1", at), tick("web-2", at), tick("web-3", at)}
		isSaid := 0
		for _, host := range hosts {
			require.Equal(t, 0, host.code(), host.stderr.String())
			if host.stderr.String() != "" {
				require.Contains(t, host.stderr.String(), "zkr: /jobs/report: done: "+at+" by web-")
				isSaid++
			}
		}
		require.Equal(t, 2, isSaid)
	}
	require.Len(t, w.lines("runs"), 2)
	require.IsIncreasing(t, w.lines("runs"))
	require.Equal(t, []string{"last"}, w.server.Children("/jobs/report"))

	late := w.run("once", "-q", "--done-code", "7", "--at", "2026-11-26T03:01", "/jobs/report", "--", "sh", "-c", "echo >> runs")
	require.Equal(t, 7, late.code)
	require.Empty(t, late.stderr)
	require.Len(t, w.lines("runs"), 2)
	require.Regexp(t, `^2026-11-26T03:01 by web-\d: finished at .*Z\n$`, w.run("once", "--last", "/jobs/report").stdout)
	require.Equal(t, 1, w.run("once", "--last", "/jobs/other").code)
}

// Two hosts have the crontab of the documents, and run its line as cron does: a percent sign is escaped, and the command is one for sh.
func TestOnceInTheCrontabOfTheDocuments(t *testing.T) {
	w := newWorld(t)
	require.NoError(t, os.WriteFile(w.file("make-report"), []byte("#!/bin/sh\necho report >> runs\n"), 0o700)) //nolint:gosec // a program
	for i, document := range []string{"README.md", "../../docs/schedulers.md"} {
		text, err := os.ReadFile(document)
		require.NoError(t, err)
		crontab := regexp.MustCompile("(?m)^```cron\nZKR_SERVERS=\\S+\n(?:\\S+ ){5}(.*)\n```$").FindStringSubmatch(string(text))
		require.NotNil(t, crontab, document)
		for isWithinADay := false; !isWithinADay; {
			day := today()
			require.NoError(t, os.RemoveAll(w.file("runs")))
			namespace := fmt.Sprint(i, "-", day)
			for range 2 { // hosts
				host := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(crontab[1], `\%`, "%"))
				host.Dir = w.dir
				host.Env = append(append(os.Environ(), w.env...), "ZKR_NAMESPACE="+namespace, "PATH="+filepath.Dir(binary)+":"+w.dir+":"+os.Getenv("PATH"))
				out, err := host.CombinedOutput()
				require.NoError(t, err, string(out))
			}
			if isWithinADay = today() == day; isWithinADay { // at midnight, the second host has another occurrence
				require.Len(t, w.lines("runs"), 1, "%s: one run of the day on two hosts", document)
				record := w.run("once", "--namespace", namespace, "--last", "/jobs/report").stdout
				require.Contains(t, record, day+"T00:00Z by ", document)
			}
		}
	}
}

// today is the date that the crontab of the documents names.
func today() string { return time.Now().UTC().Format(time.DateOnly) }

// An occurrence that is skipped, and may never have run, is reported as a failure. After --forget it runs.
func TestOnceThatIsNotRun(t *testing.T) {
	w := newWorld(t)
	once := func(at string) result {
		return w.run("once", "-q", "--done-code", "0", "--at", at, "/jobs/report", "--", "sh", "-c", "echo >> runs")
	}
	nextYear := time.Now().AddDate(1, 0, 0).UTC()
	early := once(nextYear.Format(time.RFC3339))
	require.Equal(t, 65, early.code)
	require.Contains(t, early.stderr, "zkr: once: do /jobs/report: too early: ")
	require.Equal(t, 1, w.run("once", "--forget", "/jobs/report").code, "nothing has run")

	require.Equal(t, 0, once(nextYear.Format(time.DateOnly)).code, "a date is not compared with a clock")
	day := today()
	for at, why := range map[string]string{
		day:  "superseded: " + day + ", which may never have run, is before",
		"17": "format differs from that of the latest occurrence",
	} {
		got := once(at)
		require.Equal(t, 65, got.code)
		require.Contains(t, got.stderr, why)
		require.Equal(t, 1, strings.Count(got.stderr, "\n"), got.stderr)
	}
	require.Len(t, w.lines("runs"), 1)
	forgotten := w.run("once", "--forget", "/jobs/report")
	require.Equal(t, 0, forgotten.code, forgotten.stderr)
	require.Contains(t, forgotten.stdout, "forgotten: "+nextYear.Format(time.DateOnly)+" by ")
	require.Equal(t, 0, once("17").code)
	require.Len(t, w.lines("runs"), 2)
}

// --forget does not touch the record of a current run.
func TestForgetWhileTheCommandRuns(t *testing.T) {
	w := newWorld(t)
	running := w.start("once", "--id", "web-1", "--at", "1", "/a", "--", "sh", "-c", "echo > ready; sleep 100")
	w.content("ready")
	got := w.run("once", "--forget", "/a")
	require.Equal(t, 75, got.code)
	require.Contains(t, got.stderr, "web-1")
	require.Contains(t, w.run("once", "--last", "/a").stdout, "1 by web-1: started at ")
	running.signal(syscall.SIGTERM)
	running.code()
	require.Equal(t, 0, w.run("once", "--forget", "/a").code)
	require.Equal(t, 1, w.run("once", "--last", "/a").code)
}

// Zkr ends with the exit code of a failed command, which runs again only with --retry.
func TestOnceOfACommandThatFails(t *testing.T) {
	w := newWorld(t)
	require.Equal(t, 5, w.run("once", "--at", "1", "/a", "--", "sh", "-c", "exit 5").code)
	require.Equal(t, 0, w.run("once", "--at", "1", "/a", "--", "sh", "-c", "echo >> runs").code)
	require.Empty(t, w.lines("runs"))
	require.Contains(t, w.run("once", "--last", "/a").stdout, ": exit code 5")
	require.Equal(t, 5, w.run("once", "--retry", "--at", "1", "/b", "--", "sh", "-c", "exit 5").code)
	for range 2 {
		require.Equal(t, 0, w.run("once", "--retry", "--at", "1", "/b", "--", "sh", "-c", "echo >> runs").code)
	}
	require.Len(t, w.lines("runs"), 1)
}

// A host dies while the command runs. The command is killed, and no other host repeats it.
func TestOnceThatIsKilled(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "ZKR_SESSION_TIMEOUT="+shortSession.String())
	r := w.start("once", "--at", "1", "/a", "--", "sh", "-c", "echo $$ > pid; sleep 100")
	pid := w.pid("pid")
	r.signal(syscall.SIGKILL)
	w.awaitDead(pid)
	require.Equal(t, 9, w.run("once", "--done-code", "9", "--at", "1", "/a", "--", "sh", "-c", "echo >> runs").code)
	require.Empty(t, w.lines("runs"))
	require.Contains(t, w.run("once", "--last", "/a").stdout, "not known to have finished")
}

// Busy means that another occurrence is running; a signal ends the wait.
func TestOnceWhileAnotherOccurrenceRuns(t *testing.T) {
	w := newWorld(t)
	w.hold("/a", "ann")
	require.Equal(t, 75, w.run("once", "-n", "--at", "2", "/a", "--", "true").code)
	got := w.run("once", "-w", "1", "--at", "2", "/a", "--", "true")
	require.Equal(t, 75, got.code, got.stderr)
	require.Contains(t, got.stderr, `held by "ann"`)
	waiting := w.start("once", "--at", "2", "/a", "--", "true")
	w.eventually(func() bool { return len(w.server.Children("/a")) == 3 }, "it waits")
	waiting.signal(syscall.SIGTERM)
	require.Equal(t, 128+15, waiting.code())
	o, err := once.New(w.client(), "/a")
	require.NoError(t, err)
	last, err := o.Last(t.Context())
	require.NoError(t, err)
	require.Zero(t, last)
}

func TestOnceUsage(t *testing.T) {
	w := newWorld(t)
	for _, args := range [][]string{
		{"/a", "--", "true"},
		{"--at", "", "/a", "--", "true"},
		{"--at", "1", "/a"},
		{"--at", "1", "a", "--", "true"},
		{"--at", "a\nb", "/a", "--", "true"},
		{"--at", "1", "--done-code", "256", "/a", "--", "true"},
		{"--last"},
		{"--last", "/a", "--", "true"},
		{"--forget"},
		{"--forget", "/a", "--", "true"},
		{"--forget", "--last", "/a"},
	} {
		require.Equal(t, 64, w.run(append([]string{"once"}, args...)...).code, args)
	}
	require.Empty(t, w.server.Children("/a"))
}

// The lock is held for at least this time, so that a host with a slow clock finds the lock held. A revocation, a signal,
// or a command that takes longer ends the hold.
func TestAtLeast(t *testing.T) {
	w := newWorld(t)
	began := time.Now()
	require.Equal(t, 3, w.run("lock", "--at-least", "0.5", "/a", "--", "sh", "-c", "exit 3").code)
	require.GreaterOrEqual(t, time.Since(began), 500*time.Millisecond)

	hour := w.start("lock", "--id", "hour", "--at-least", "1h", "/a", "--", "sh", "-c", "echo > ready")
	w.content("ready")
	require.Equal(t, 75, w.run("lock", "-w", "1", "/a", "--", "true").code)
	require.Equal(t, 0, w.run("revoke", "/a").code)
	require.Equal(t, 0, hour.code())

	hour = w.start("lock", "--at-least", "1h", "/a", "--", "sh", "-c", "echo > ready-2")
	w.content("ready-2")
	hour.signal(syscall.SIGTERM)
	require.Contains(t, []int{0, 128 + 15}, hour.code(), "the command may have been running still")
	require.Equal(t, 64, w.run("lock", "--at-least", "0", "/a", "--", "true").code)
}
