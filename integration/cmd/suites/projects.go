package main

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// runGoZookeeper runs the tests of package zk, in the version that the library requires.
func runGoZookeeper(ctx context.Context, _ string, env []string) (results, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-count=1", "-timeout", maxTime.String(), "github.com/go-zookeeper/zk")
	cmd.Env, cmd.Stderr = append(env, "ZK_VERSION=3.8.0"), os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	found := results{}
	outcomes := map[string]string{"pass": passed, "fail": failed, "skip": skipped}
	output := map[string]string{}
	for lines := json.NewDecoder(out); ; {
		var event struct{ Action, Test, Output string }
		if err := lines.Decode(&event); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		test, _, _ := strings.Cut(event.Test, "/")
		output[test] += event.Output
		if outcome := outcomes[event.Action]; outcome != "" && event.Test != "" && !strings.Contains(event.Test, "/") {
			found[test] = outcome
			if outcome == failed {
				_, _ = io.WriteString(os.Stderr, output[test])
			}
		}
	}
	if err := cmd.Wait(); len(found) == 0 {
		return nil, errors.Join(err, errors.New("no test has run"))
	}
	return found, ctx.Err()
}

// runKazoo runs kazoo's tests with pytest, as its own CI does.
func runKazoo(ctx context.Context, dir string, env []string) (results, error) {
	report := filepath.Join(dir, "kazoo.xml")
	cmd := exec.CommandContext(ctx, "/usr/bin/python3", "-m", "pytest", "-v", "--tb=short", "-p", "no:cacheprovider",
		"--junitxml", report, "--pyargs", "kazoo.tests")
	cmd.Dir = dir
	cmd.Env = append(env, "ZOOKEEPER_CLASSPATH=none", "ZOOKEEPER_VERSION=3.8.0", "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	failure := cmd.Run()
	text, err := os.ReadFile(report)
	if err != nil {
		return nil, errors.Join(failure, err)
	}
	var suites struct {
		Cases []struct {
			Class   string    `xml:"classname,attr"`
			Name    string    `xml:"name,attr"`
			Failure *struct{} `xml:"failure"`
			Error   *struct{} `xml:"error"`
			Skipped *struct{} `xml:"skipped"`
		} `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal(text, &suites); err != nil {
		return nil, err
	}
	found := results{}
	for _, c := range suites.Cases {
		test := strings.TrimPrefix(c.Class, "kazoo.tests.") + "." + c.Name
		switch {
		case c.Failure != nil || c.Error != nil:
			found[test] = failed
		case found[test] == failed: // an error at its end follows its success
		case c.Skipped != nil:
			found[test] = skipped
		default:
			found[test] = passed
		}
	}
	return found, ctx.Err()
}
