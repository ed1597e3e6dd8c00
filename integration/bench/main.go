// Bench measures locks side by side: this library, zk.Lock, Curator, etcd's concurrency, redsync, and the limit of ZooKeeper's
// protocol. Each case puts one peer after the other under the same load, in interleaved rounds, on one server.
//
//	go run ./integration/bench -list
//	go run ./integration/bench -cases pair,contended -rounds 5 -out /tmp/bench
//	go run ./integration/bench -short -doc docs/evidence/performance.md
//
// It needs a JDK, Debian's ZooKeeper and Curator, and redis-server. Compare only figures of one run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/zkrecipes/zkrecipes/integration/bench/load"
	"github.com/zkrecipes/zkrecipes/integration/bench/peer"
	"github.com/zkrecipes/zkrecipes/integration/bench/peer/others"
	"github.com/zkrecipes/zkrecipes/integration/bench/report"
	"github.com/zkrecipes/zkrecipes/integration/bench/runner"
	"github.com/zkrecipes/zkrecipes/integration/bench/server/real"
)

// settings are the flags.
type settings struct {
	cases, peers    string
	rounds, discard int
	short, list     bool
	out, doc        string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := play(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// play runs the role of this process.
func play(ctx context.Context) error {
	switch role := load.Role(); {
	case role == nil:
		return run(ctx, parse())
	case role[0] == runner.RoleWorker:
		return load.Serve(os.Stdin, os.Stdout, append(peer.OnZooKeeper(), others.Peers()...), role[1])
	case role[0] == real.RoleEtcd:
		return real.ServeEtcd(ctx, role)
	default:
		return fmt.Errorf("no such role: %s", role[0])
	}
}

func parse() settings {
	var s settings
	flag.StringVar(&s.cases, "cases", "", "beginnings of the cases to run, with commas; all by default")
	flag.StringVar(&s.peers, "peers", "", "peers to run, with commas; all by default")
	flag.IntVar(&s.rounds, "rounds", 5, "rounds that count")
	flag.IntVar(&s.discard, "discard", 2, "rounds before them that are thrown away")
	flag.BoolVar(&s.short, "short", false, "smaller loads, and not the longest cases")
	flag.BoolVar(&s.list, "list", false, "list the cases and run none")
	flag.StringVar(&s.out, "out", "", "folder for results.md and benchstat.txt")
	flag.StringVar(&s.doc, "doc", "", "page whose tables are replaced; its charts are drawn anew, in the folder of its name")
	flag.Parse()
	return s
}

func run(ctx context.Context, s settings) error {
	cases, err := chosen(s)
	if err != nil {
		return err
	}
	if s.list {
		for _, c := range cases {
			fmt.Printf("%-20s %s: %s\n", c.Name, c.Title, strings.Join(c.Peers, ", "))
		}
		return nil
	}
	for _, c := range cases {
		if err := needs(c); err != nil {
			return fmt.Errorf("%w (or leave it out with -peers)", err)
		}
	}
	b, err := newBench()
	if err != nil {
		return err
	}
	r := &report.Report{Rounds: s.rounds, Environment: report.Environment(s.short)}
	err = measure(ctx, b, cases, s, r)
	return errors.Join(err, b.close(), write(r, s))
}

// measure runs the cases. What was measured before a failure stays in the report.
func measure(ctx context.Context, b *bench, cases []runner.Case, s settings, r *report.Report) error {
	for _, c := range cases {
		stages, err := b.enter(ctx, c)
		if err != nil {
			return err
		}
		results, counted, err := runner.Run(ctx, c, stages, s.rounds, s.discard, os.Stderr)
		if err != nil {
			return err
		}
		section := r.Add(c, results, counted)
		if _, err := io.WriteString(os.Stdout, section.Markdown()); err != nil {
			return err
		}
	}
	return nil
}

func write(r *report.Report, s settings) error {
	var errs []error
	if s.out != "" {
		errs = append(errs, r.WriteFolder(s.out))
	}
	if s.doc != "" {
		errs = append(errs, r.UpdatePage(s.doc))
	}
	return errors.Join(errs...)
}

// chosen returns the cases selected by the flags, each with its selected peers.
func chosen(s settings) ([]runner.Case, error) {
	var cases []runner.Case
	for _, c := range runner.Cases(s.short) {
		if s.cases != "" && !slices.ContainsFunc(strings.Split(s.cases, ","), func(name string) bool { return strings.HasPrefix(c.Name, name) }) {
			continue
		}
		if s.peers != "" {
			c.Peers = slices.DeleteFunc(slices.Clone(c.Peers), func(name string) bool { return !slices.Contains(strings.Split(s.peers, ","), name) })
		}
		if len(c.Peers) > 0 {
			cases = append(cases, c)
		}
	}
	if len(cases) == 0 {
		return nil, errors.New("no case has such a name, or none of its peers")
	}
	return cases, nil
}
