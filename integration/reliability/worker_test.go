package reliability_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

const (
	// workerVariable makes this binary, run again as a separate process, the holder that will be stopped. Its value is
	// the holder's mode.
	workerVariable = "ZKRECIPES_TEST_WORKER"
	workOn         = "goes on in the belief that it holds the lock"
	workByTheRules = "goes by its lease's context"
	// workerLife bounds a process whose test died.
	workerLife = 5 * time.Minute
)

// awakening has the findings of a resumed holder.
type awakening struct {
	Stopped  time.Duration // how long it was
	Trusted  bool          // before TrustedUntil
	Believed time.Duration // until the lease's context ended
	Deadline time.Duration // until a context of Go's own, with a deadline in the meantime, ended
	Write    string        // what the store says
	Cause    string
	Release  string
}

func runWorker(work string) int {
	ctx, cancel := context.WithTimeout(context.Background(), workerLife)
	defer cancel()
	through := holdThroughStop
	if work == workByTheRules {
		through = holdToTheEnd
	}
	if err := hold(ctx, os.Args[1], os.Args[2], os.Args[3:], through); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 1
	}
	return 0
}

// hold holds the lock, and prints its token.
func hold(ctx context.Context, timeout, path string, servers []string, through func(context.Context, *recipes.Lease) error) error {
	sessions, err := time.ParseDuration(timeout)
	if err != nil {
		return err
	}
	client, err := recipes.Connect(ctx, servers, recipes.WithSessionTimeout(sessions))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	m, err := mutex.New(client, path)
	if err != nil {
		return err
	}
	lease, err := m.Acquire(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, lease.FencingToken())
	return through(ctx, lease)
}

// clock is the machine's monotonic clock, the same for all its processes.
func clock() int64 {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		panic(err) // the clock is always there
	}
	return at.Nano()
}

// holdToTheEnd prints when the lease's context ends, and why. It stays until its input ends.
func holdToTheEnd(ctx context.Context, lease *recipes.Lease) error {
	select {
	case <-lease.Context().Done():
	case <-ctx.Done():
	}
	fmt.Fprintln(os.Stdout, clock(), context.Cause(lease.Context()))
	bufio.NewScanner(os.Stdin).Scan()
	return ctx.Err()
}

// holdThroughStop is busy from its first input line until it was stopped and resumes. It then tries to write, as if
// nothing happened, and prints its findings.
func holdThroughStop(ctx context.Context, lease *recipes.Lease) error {
	in := bufio.NewScanner(os.Stdin)
	if !in.Scan() {
		return errors.New("no line to start at")
	}
	found, err := wake(ctx, lease)
	if err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, lease.FencingToken()) // a write
	if in.Scan() {
		found.Write = in.Text()
	}
	var failed *recipes.OpError
	if err := lease.Release(); errors.As(err, &failed) {
		found.Release = failed.Err.Error()
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

// wake reports that it is busy, and stays so until it finds a gap in time, and then until both contexts end.
func wake(ctx context.Context, lease *recipes.Lease) (awakening, error) {
	plain, cancel := context.WithDeadline(ctx, lease.TrustedUntil().Add(stoppedTimeout))
	defer cancel()
	last := time.Now()
	fmt.Fprintln(os.Stdout, "busy") // it may be stopped from here on
	woken := time.Now()
	for ; woken.Sub(last) < stoppedTimeout; woken = time.Now() {
		last = woken
		if ctx.Err() != nil {
			return awakening{}, errors.New("never stopped")
		}
	}
	found := awakening{Stopped: woken.Sub(last), Trusted: woken.Before(lease.TrustedUntil())}
	for over := time.Duration(0); (found.Believed == 0 || found.Deadline == 0) && over < stoppedTimeout; {
		ended, passed := lease.Context().Err() != nil, plain.Err() != nil
		over = time.Since(woken)
		if found.Believed == 0 && (ended || over >= stoppedTimeout) {
			found.Believed = over
		}
		if found.Deadline == 0 && passed {
			found.Deadline = over
		}
	}
	found.Cause = fmt.Sprint(context.Cause(lease.Context()))
	return found, ctx.Err()
}
