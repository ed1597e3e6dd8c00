package gocronzkrecipes_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/contrib/gocronzkrecipes"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/once"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

const path = "/jobs"

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler)) // where clients log
	goleak.VerifyTestMain(m)
}

// runs records which host ran a job.
type runs struct {
	mu    sync.Mutex
	hosts []int
}

func (r *runs) add(host int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hosts = append(r.hosts, host)
}

// take returns the hosts of the runs since the last call.
func (r *runs) take() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	hosts := r.hosts
	r.hosts = nil
	return hosts
}

// schedule starts a scheduler with a job that runs each minute. The test shuts it down before it closes older clients.
func schedule(t *testing.T, task any, opts ...gocron.SchedulerOption) gocron.Job {
	t.Helper()
	scheduler, err := gocron.NewScheduler(opts...)
	require.NoError(t, err)
	job, err := scheduler.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(task))
	require.NoError(t, err)
	scheduler.Start()
	t.Cleanup(func() { require.NoError(t, scheduler.Shutdown()) })
	return job
}

// elect returns a started latch of a new client, with its elector.
func elect(t *testing.T, server *zktest.Server) (*recipes.Client, *latch.LeaderLatch, *gocronzkrecipes.Elector) {
	t.Helper()
	client := zkclient.Connect(t, server)
	election, err := latch.New(client, path)
	require.NoError(t, err)
	elector := gocronzkrecipes.NewElector(election)
	require.NoError(t, election.Start())
	<-election.Decided()
	synctest.Wait() // for the listener
	return client, election, elector
}

// wait advances the virtual clock.
func wait(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}

func TestLeaderAloneRunsJobs(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		var ran runs
		var elections []*latch.LeaderLatch
		for host := range 3 {
			_, election, elector := elect(t, server)
			elections = append(elections, election)
			schedule(t, elector.Task(func(context.Context, *recipes.Lease) error {
				ran.add(host)
				return nil
			}), gocron.WithDistributedElector(elector))
		}
		wait(3*time.Minute + time.Second)
		require.Equal(t, []int{0, 0, 0}, ran.take())
		require.NoError(t, elections[0].Close())
		wait(2 * time.Minute)
		require.Equal(t, []int{1, 1}, ran.take())
	})
}

func TestLossOfLeadershipEndsTask(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		client, _, elector := elect(t, server)
		_, _, successor := elect(t, server)
		var cause error
		schedule(t, elector.Task(func(ctx context.Context, term *recipes.Lease) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			require.ErrorIs(t, context.Cause(term.Context()), recipes.ErrSessionLost)
			return cause
		}), gocron.WithDistributedElector(elector))
		wait(61 * time.Second)
		require.ErrorIs(t, successor.IsLeader(t.Context()), gocronzkrecipes.ErrNotLeader)
		server.Expire(client.Conn().SessionID())
		wait(time.Second)
		require.ErrorIs(t, cause, recipes.ErrSessionLost)
		require.NoError(t, successor.IsLeader(t.Context()))
	})
}

func TestStepDownWaitsForTask(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		_, election, elector := elect(t, server)
		_, _, successor := elect(t, server)
		var cause error
		schedule(t, elector.Task(func(ctx context.Context, _ *recipes.Lease) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			time.Sleep(5 * time.Second) //nolint:forbidigo // virtual time
			return cause
		}), gocron.WithDistributedElector(elector))
		wait(61 * time.Second)
		term, ok := election.Leadership()
		require.True(t, ok)
		require.NoError(t, term.Release())
		wait(4 * time.Second)
		require.ErrorIs(t, cause, recipes.ErrReleased)
		require.ErrorIs(t, elector.IsLeader(t.Context()), gocronzkrecipes.ErrNotLeader)
		require.ErrorIs(t, successor.IsLeader(t.Context()), gocronzkrecipes.ErrNotLeader, "the task still runs")
		wait(2 * time.Second)
		require.NoError(t, successor.IsLeader(t.Context()))
	})
}

func TestNextTermWaitsForTasksOfLostTerm(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		client, election, elector := elect(t, server)
		returned := make(chan error)
		finish := make(chan struct{})
		go func() { // ends with the task, which the test finishes
			returned <- elector.Task(func(context.Context, *recipes.Lease) error {
				<-finish
				return nil
			})(t.Context())
		}()
		synctest.Wait()
		server.Expire(client.Conn().SessionID())
		wait(time.Minute)
		require.ErrorIs(t, elector.IsLeader(t.Context()), gocronzkrecipes.ErrNotLeader)
		close(finish)
		require.NoError(t, <-returned)
		wait(time.Minute)
		require.True(t, election.HasLeadership(), "with the next session")
		require.NoError(t, elector.IsLeader(t.Context()))
	})
}

func TestShutdownOfSchedulerEndsTask(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		_, _, elector := elect(t, zktest.NewServer(t))
		scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
		require.NoError(t, err)
		ended := make(chan error, 1)
		_, err = scheduler.NewJob(gocron.DurationJob(time.Minute), gocron.NewTask(elector.Task(func(ctx context.Context, _ *recipes.Lease) error {
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return nil
		})))
		require.NoError(t, err)
		scheduler.Start()
		wait(61 * time.Second)
		require.NoError(t, scheduler.Shutdown())
		require.Equal(t, context.Canceled, <-ended)
		require.NoError(t, elector.IsLeader(t.Context()), "the latch still leads")
	})
}

func TestTaskIsNotCalledWithoutTerm(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		_, election, elector := elect(t, zktest.NewServer(t))
		task := elector.Task(func(context.Context, *recipes.Lease) error {
			t.Error("called without a term")
			return nil
		})
		require.NoError(t, election.Close())
		for _, err := range []error{task(t.Context()), elector.IsLeader(t.Context())} {
			require.ErrorIs(t, err, gocronzkrecipes.ErrNotLeader)
			require.ErrorIs(t, err, recipes.ErrClosed)
		}
	})
}

func TestTaskReturnsErrorOfFunction(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		_, _, elector := elect(t, zktest.NewServer(t))
		failure := errors.New("no disk")
		task := elector.Task(func(context.Context, *recipes.Lease) error { return failure })
		require.Equal(t, failure, task(t.Context()))
	})
}

func TestTickRunsOnceOnAllHosts(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		var ran runs
		for host := range 3 {
			o, err := once.New(zkclient.Connect(t, server), path)
			require.NoError(t, err)
			schedule(t, gocronzkrecipes.OnceTask(o, time.Minute, func(context.Context, *recipes.Lease) error {
				ran.add(host)
				return nil
			}))
			wait(10 * time.Millisecond) // the clocks differ by more than a run takes
		}
		wait(3*time.Minute + time.Second)
		require.Len(t, ran.take(), 3)
	})
}

// locker is the gocron.Locker that the package comment advises against.
type locker struct{ client *recipes.Client }

type lock struct{ *recipes.Lease }

func (l lock) Unlock(context.Context) error { return l.Release() }

func (l locker) Lock(ctx context.Context, name string) (gocron.Lock, error) {
	m, err := mutex.New(l.client, path+"/"+recipes.Segment(name))
	if err != nil {
		return nil, err
	}
	lease, err := m.TryAcquire(ctx)
	if err != nil {
		return nil, err
	}
	return lock{lease}, nil
}

func TestLockerOnMutexRunsTickOnEachHost(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		server := zktest.NewServer(t)
		var ran runs
		for host := range 3 {
			schedule(t, func() { ran.add(host) }, gocron.WithDistributedLocker(locker{zkclient.Connect(t, server)}))
			wait(10 * time.Millisecond)
		}
		wait(3*time.Minute + time.Second)
		require.Len(t, ran.take(), 9, "3 ticks on 3 hosts")
	})
}

func TestOnceTaskReturnsErrors(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		client := zkclient.Connect(t, zktest.NewServer(t))
		o, err := once.New(client, path)
		require.NoError(t, err)
		failure := errors.New("no disk")
		task := gocronzkrecipes.OnceTask(o, time.Minute, func(context.Context, *recipes.Lease) error { return failure })
		require.Equal(t, failure, task(t.Context()))
		require.NoError(t, task(t.Context()), "done: another call had the tick")
		wait(time.Minute)
		require.NoError(t, client.Close())
		require.ErrorIs(t, task(t.Context()), recipes.ErrClosed)
	})
}

func TestOnceTaskRefusesPeriod(t *testing.T) {
	require.Panics(t, func() { gocronzkrecipes.OnceTask(nil, 0, nil) })
}
