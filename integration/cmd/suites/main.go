// Suites runs the test suites of other ZooKeeper clients against zktest:
//
//	suites go-zookeeper     github.com/go-zookeeper/zk, from the module cache
//	suites kazoo            kazoo, from Debian's package python3-kazoo; needs python3-pytest, -mock and -objgraph
//
// Without an argument it runs both. A suite starts its servers with the command zkServer.sh or java. Suites replaces
// these commands by member processes. Each member forwards a server's port to an ensemble of zktest in this process,
// and stops its server when the suite kills the member.
//
// The exit status is 1 if a test fails that is not in the list of tests that are out by
// design, or if a listed test passes or is missing. Tests with a race of their own have a
// list, too, and may fail.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// suite is a test suite of another project.
type suite struct {
	name string
	run  func(ctx context.Context, dir string, env []string) (results, error)
	out  map[string]string // tests that are out by design, with the reasons
	racy map[string]string // tests that may fail because of a race of their own, with the races
}

// results has the outcome of each test: passed, failed or skipped.
type results map[string]string

const (
	passed  = "passed"
	failed  = "failed"
	skipped = "skipped"
)

// maxTime bounds the run of a suite.
const maxTime = 15 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) == 3 && os.Args[1] == "member" {
		if err := runMember(ctx, os.Args[2], os.Getenv(envCoordinator)); err != nil {
			fmt.Fprintln(os.Stderr, "suites: member:", err)
			os.Exit(1)
		}
		return
	}
	if err := runAll(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
		os.Exit(1)
	}
}

// runAll runs the suites with the given names, or all suites.
func runAll(ctx context.Context, names []string) error {
	suites := []suite{
		{name: "go-zookeeper", run: runGoZookeeper, out: outOfGoZookeeper},
		{name: "kazoo", run: runKazoo, out: outOfKazoo, racy: racyInKazoo},
	}
	var wrong error
	for _, s := range suites {
		if len(names) > 0 && !slices.Contains(names, s.name) {
			continue
		}
		wrong = errors.Join(wrong, s.check(ctx))
	}
	return wrong
}

// check runs the suite, and compares the results with the list of tests that are out.
func (s suite) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	dir, err := os.MkdirTemp("", "suites")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	c, err := newCoordinator(dir)
	if err != nil {
		return err
	}
	defer c.close()
	if err := installServers(dir); err != nil {
		return err
	}
	env := append(os.Environ(), envCoordinator+"="+c.address(), "ZOOKEEPER_BIN_PATH="+dir, "PATH="+dir+":"+os.Getenv("PATH"))
	found, err := s.run(ctx, dir, env)
	if err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	return s.judge(found)
}

// judge prints a summary, and returns an error for each test whose outcome is unexpected.
func (s suite) judge(found results) error {
	count := map[string]int{}
	var wrong error
	for test, outcome := range found {
		count[outcome]++
		if outcome == failed && s.out[test] == "" && s.racy[test] == "" {
			wrong = errors.Join(wrong, fmt.Errorf("%s: %s failed", s.name, test))
		}
	}
	for test, reason := range s.out {
		switch outcome := found[test]; {
		case outcome == "":
			wrong = errors.Join(wrong, fmt.Errorf("%s: %s is listed as out (%s), and there is no such test", s.name, test, reason))
		case outcome != failed:
			wrong = errors.Join(wrong, fmt.Errorf("%s: %s is listed as out (%s), and %s", s.name, test, reason, outcome))
		}
	}
	fmt.Printf("%s: %d passed, %d failed, of which %d are out by design, %d skipped\n",
		s.name, count[passed], count[failed], len(s.out), count[skipped])
	return wrong
}

// installServers writes the commands that suites run as ZooKeeper servers.
func installServers(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	for _, name := range []string{"zkServer.sh", "java"} {
		// The configuration is the last argument of both.
		script := fmt.Sprintf("#!/bin/sh\nfor config; do :; done\nexec '%s' member \"$config\"\n", strings.ReplaceAll(self, "'", `'\''`))
		if err := os.WriteFile(dir+"/"+name, []byte(script), 0o755); err != nil { //nolint:gosec // a command
			return err
		}
	}
	return nil
}
