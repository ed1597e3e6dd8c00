package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/bench/load"
)

// RoleWorker is the role of a process under load; the name of its peer follows.
const RoleWorker = "worker"

// Worker returns the command that starts this program again as a process under load.
func Worker(ctx context.Context, name string) func() (*exec.Cmd, error) {
	return func() (*exec.Cmd, error) { return load.Self(ctx, RoleWorker, name) }
}

// Run puts the peers of a case under its load, in rounds. Each round runs every peer once, starts with another peer, and has
// the opposite direction of the previous round. The first discard rounds do not count. The peers on ZooKeeper run once more
// behind a meter.
func Run(ctx context.Context, c Case, stages []Stage, rounds, discard int, progress io.Writer) ([]Result, []Counted, error) {
	for i := range stages {
		stages[i].Load.Path = fmt.Sprintf("/%s-%d", c.Name, i)
		stages[i].Load.Pairs = c.pairsOf(stages[i].crew.Name)
	}
	if !c.kind.ownSessions() {
		if err := openAll(stages); err != nil {
			return nil, nil, err
		}
	}
	results, err := runRounds(ctx, c, stages, rounds, discard, progress)
	if err := errors.Join(err, closeAll(stages)); err != nil {
		return nil, nil, err
	}
	counted, err := countAll(ctx, c, stages)
	return results, counted, err
}

func openAll(stages []Stage) error {
	var errs []error
	for _, s := range stages {
		errs = append(errs, s.crew.Open(s.server.Addr(), s.Sessions))
	}
	return errors.Join(errs...)
}

// closeAll closes all sessions, also after a failed run.
func closeAll(stages []Stage) error {
	var errs []error
	for _, s := range stages {
		errs = append(errs, s.crew.CloseSessions())
	}
	return errors.Join(errs...)
}

// runRounds runs the rounds, and returns the results that count.
func runRounds(ctx context.Context, c Case, stages []Stage, rounds, discard int, progress io.Writer) ([]Result, error) {
	var results []Result
	for round := -discard; round < rounds; round++ {
		for _, i := range order(len(stages), round+discard) {
			s := stages[i]
			if c.Fresh {
				s.Load.Path = fmt.Sprintf("%s-%d", s.Load.Path, round+discard)
			}
			began := time.Now()
			values, err := c.kind.run(ctx, s)
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(progress, "%s round %d: %s: %v in %v\n", c.Name, round, s.crew.Name, values, time.Since(began).Round(time.Millisecond))
			if round >= 0 {
				results = append(results, Result{Case: c.Name, Peer: s.crew.Name, Round: round, Values: values})
			}
		}
	}
	return results, nil
}

// order is the order of the peers in a round. The direction alternates, so that leftovers of a peer, such as garbage at the
// server, do not always affect the same other peer.
func order(peers, round int) []int {
	turns := make([]int, peers)
	for i := range turns {
		turns[i] = (i + round) % peers
	}
	if round%2 == 1 {
		slices.Reverse(turns[1:])
	}
	return turns
}

// countAll counts what can be counted.
func countAll(ctx context.Context, c Case, stages []Stage) ([]Counted, error) {
	var counted []Counted
	for _, s := range stages {
		if !c.kind.isCounted() || !onZooKeeper(s.crew.Name) {
			continue
		}
		figures, err := Count(ctx, c, s.crew, s.server)
		if err != nil {
			return nil, err
		}
		counted = append(counted, figures)
	}
	return counted, nil
}
