package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

const (
	session = 30 * time.Second
	tick    = 50 * time.Millisecond // zktest's
)

// cluster is a server and a database for workers in virtual time.
type cluster struct {
	t      *testing.T
	server *zktest.Server
	store  *store
	events *journal
}

// newCluster is for a bubble of synctest.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	return &cluster{t: t, server: zktest.NewServer(t), store: sqliteStore(t), events: newJournal()}
}

// member is a worker of a cluster, with its session.
type member struct {
	*worker

	client *recipes.Client
}

func (c *cluster) join(id string, work job) *member {
	c.t.Helper()
	log := slog.New(slog.NewJSONHandler(&lines{journal: c.events}, nil)).With("worker", id)
	metrics, err := newTelemetry(c.t.Context())
	require.NoError(c.t, err)
	c.t.Cleanup(func() { require.NoError(c.t, metrics.close(context.WithoutCancel(c.t.Context()))) })
	client, err := recipes.Connect(c.t.Context(), c.server.Addrs(), recipes.WithDialer(c.server.Dialer()),
		recipes.WithSessionTimeout(session), recipes.WithLogger(log), recipes.WithTrace(metrics.Trace()))
	require.NoError(c.t, err)
	c.t.Cleanup(func() { require.NoError(c.t, client.Close()) })
	_, err = metrics.Observe(client)
	require.NoError(c.t, err)
	w := &worker{id: id, store: c.store, job: work, every: time.Minute, log: log, telemetry: metrics}
	require.NoError(c.t, w.enter(client))
	c.t.Cleanup(func() { require.NoError(c.t, w.leave()) })
	<-w.latch.Decided()
	return &member{worker: w, client: client}
}

// cut makes the network of a member silent.
func (c *cluster) cut(m *member) { c.server.Partition(m.client.Conn().SessionID()) }

// await waits for a member's first event with this message.
func (c *cluster) await(id, msg string) event {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), time.Hour)
	defer cancel()
	e, _, err := c.events.await(ctx, 0, func(e event) bool { return e.Worker == id && e.Msg == msg })
	require.NoError(c.t, err)
	return e
}

// look is what the page of a member shows.
func (c *cluster) look(w *worker) status {
	c.t.Helper()
	s, known := w.page().look(c.t.Context())
	require.True(c.t, known)
	return s
}

func (c *cluster) runs() []runRecord {
	c.t.Helper()
	runs, err := c.store.lastRuns(c.t.Context(), allRuns)
	require.NoError(c.t, err)
	return runs
}

// At once when it leads, and then every minute, however long a run takes.
func TestRunsAtOnceAndThenEveryMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ann := c.join("ann", waiting(7*time.Second))
		began := c.await("ann", saysBegins).Time
		time.Sleep(3*time.Minute + 8*time.Second) //nolint:forbidigo // virtual time
		runs := c.runs()
		require.Len(t, runs, 4)
		lease, leads := ann.latch.Leadership()
		require.True(t, leads)
		for i, r := range runs {
			n := len(runs) - i
			require.Equal(t, runRecord{
				Number: int64(n), Token: lease.FencingToken(), Leader: "ann", Outcome: outcomeDone,
				Due:   time.UnixMilli(began.UnixMilli()).Add(time.Duration(n-1) * time.Minute),
				Began: time.UnixMilli(began.UnixMilli()).Add(time.Duration(n-1) * time.Minute), Took: 7 * time.Second,
			}, r)
		}
	})
}

// A worker that leaves in the middle of a run interrupts it and records that. The next worker runs the job in the
// same instant of virtual time.
func TestOrderlyHandoverTakesNoTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ann := c.join("ann", waiting(10*time.Second))
		c.join("bob", waiting(time.Second))
		time.Sleep(4 * time.Second) //nolint:forbidigo // virtual time
		asked := time.Now()
		require.NoError(t, ann.leave())
		c.await("bob", saysBegins)
		require.Equal(t, asked, time.Now())

		c.await("bob", saysRuns)
		runs := c.runs()
		require.Len(t, runs, 2)
		require.Equal(t, []string{"bob", outcomeDone}, []string{runs[0].Leader, runs[0].Outcome})
		require.Equal(t, []string{"ann", outcomeStopped}, []string{runs[1].Leader, runs[1].Outcome})
		require.Equal(t, asked.Sub(c.await("ann", saysBegins).Time).Truncate(time.Millisecond), runs[1].Took)
		require.Greater(t, runs[0].Token, runs[1].Token)
		require.False(t, c.await("ann", saysEnds).Valid.After(c.await("bob", saysLeads).Time))
	})
}

// The schedule is in the database, so a takeover does not run the job early.
func TestNextLeaderKeepsToTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ann := c.join("ann", waiting(time.Second))
		c.join("bob", waiting(time.Second))
		began := c.await("ann", saysBegins).Time
		time.Sleep(20 * time.Second) //nolint:forbidigo // virtual time
		require.NoError(t, ann.leave())
		c.await("bob", saysLeads)
		begins := c.await("bob", saysBegins)
		require.Equal(t, time.Minute, begins.Time.Sub(began).Round(time.Millisecond))
		require.Equal(t, int64(2), begins.Run)
	})
}

// A run that became due without a leader is made up for once, and later runs are on time.
func TestOverdueRunStartsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ann := c.join("ann", waiting(time.Second))
		c.join("bob", waiting(time.Second))
		began := c.await("ann", saysBegins).Time
		time.Sleep(36 * time.Second) //nolint:forbidigo // virtual time
		c.cut(ann)
		leads := c.await("bob", saysLeads)
		require.Greater(t, leads.Time.Sub(began), time.Minute, "the run is overdue by then")
		require.Equal(t, leads.Time, c.await("bob", saysBegins).Time)
		c.server.Heal()
		time.Sleep(time.Minute) //nolint:forbidigo // virtual time
		runs := c.runs()
		require.Len(t, runs, 3)
		require.Equal(t, 2*time.Minute, runs[0].Began.Sub(began).Round(time.Millisecond))
	})
}

// A due time far ahead, as a longer interval or a wrong clock leaves it, holds up the job
// for no longer than an interval.
func TestDueTimeFarAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		claim(t, c.store, 1)
		require.NoError(t, c.store.record(t.Context(), aRun(1, 1), time.Now().Add(time.Hour)))
		c.join("ann", waiting(0))
		leads := c.await("ann", saysLeads)
		begins := c.await("ann", saysBegins)
		require.Equal(t, time.Minute, begins.Time.Sub(leads.Time).Round(time.Millisecond))
	})
}

// Without a database, no worker runs the job in a hot loop.
func TestPauseAfterAFailureOfTheDatabase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		require.NoError(t, c.store.Close())
		c.join("ann", waiting(0))
		time.Sleep(time.Minute - time.Second) //nolint:forbidigo // virtual time
		var failures int
		for _, e := range c.events.all() {
			if e.Msg == saysFails {
				failures++
			}
		}
		require.Equal(t, int(time.Minute/storePause), failures)
	})
}

// The znode stays as long as the job of the leader runs on.
func TestNoWorkerLeadsWhileTheJobRunsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		release := make(chan struct{})
		ann := c.join("ann", func(context.Context) error { <-release; return nil })
		bob := c.join("bob", waiting(0))
		c.await("ann", saysBegins)
		left := make(chan error, 1)
		go func() { left <- ann.leave() }()
		time.Sleep(20 * time.Second) //nolint:forbidigo // virtual time; less than the grace of 30 s
		require.False(t, ann.latch.HasLeadership())
		require.False(t, bob.latch.HasLeadership())
		require.Len(t, c.server.Children(electionPath), 2)
		close(release)
		require.NoError(t, <-left)
		c.await("bob", saysBegins)
	})
}

// A leader that is cut off stops before the next one starts, which takes the session
// timeout and a tick of the server.
func TestCutOffLeaderStopsBeforeTheNextOneStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ann := c.join("ann", waiting(time.Second))
		c.join("bob", waiting(time.Second))
		c.await("ann", saysRuns)
		c.cut(ann)
		cut := time.Now()
		ends := c.await("ann", saysEnds)
		require.Contains(t, ends.Err, "session lost")
		leads := c.await("bob", saysLeads)
		require.True(t, ends.Time.Before(leads.Time))
		require.LessOrEqual(t, leads.Time.Sub(cut), session+tick)
		require.True(t, leads.Time.Before(c.await("bob", saysBegins).Time), "the job runs when it is due")
		c.server.Heal()
	})
}

// The worst case: a leader that continues to work. The store refuses its writes.
func TestStaleRecordIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var once sync.Once
		ann := c.join("ann", func(context.Context) error {
			once.Do(func() { time.Sleep(2 * session) }) //nolint:forbidigo // virtual time
			return nil
		})
		c.join("bob", waiting(time.Second))
		c.await("ann", saysBegins)
		c.cut(ann)
		c.await("bob", saysRuns) // run 1, which ann still works on
		refused := c.await("ann", saysFails)
		require.True(t, refused.Stale)
		require.Contains(t, refused.Err, "record run 1 ")
		c.await("ann", saysEnds)
		runs := c.runs()
		require.NotEmpty(t, runs)
		for _, r := range runs {
			require.Equal(t, "bob", r.Leader)
		}
		c.server.Heal()
	})
}

// A run that fails or panics is recorded as failed, and the next one runs. A panic also ends the term; the latch
// reports it and queues again.
func TestFailedRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var n int
		c.join("ann", func(context.Context) error {
			switch n++; n {
			case 1:
				return context.DeadlineExceeded
			case 2:
				panic("out of luck")
			default:
				return nil
			}
		})
		time.Sleep(2*time.Minute + time.Second) //nolint:forbidigo // virtual time
		runs := c.runs()
		require.Len(t, runs, 3)
		require.Equal(t, []string{outcomeDone, outcomeFailed, outcomeFailed},
			[]string{runs[0].Outcome, runs[1].Outcome, runs[2].Outcome})
		require.Equal(t, runs[2].Token, runs[1].Token, "a failure does not end the term")
		require.Greater(t, runs[0].Token, runs[1].Token, "a panic does")
		require.Equal(t, time.Minute, runs[0].Began.Sub(runs[1].Began).Round(time.Millisecond), "the next run is not early")
		var failed, panicked []string
		for _, e := range c.events.all() {
			require.False(t, e.Stale)
			if e.Msg == saysFails {
				failed = append(failed, e.Err)
			} else if strings.Contains(e.Err, "panic: ") {
				panicked = append(panicked, e.Err)
			}
		}
		require.Len(t, failed, 1)
		require.Contains(t, failed[0], "deadline exceeded")
		require.Len(t, panicked, 1, "reported once, by the latch")
		require.Contains(t, panicked[0], "panic: out of luck")
	})
}

// "No" before the first decision would be a guess.
func TestIsLeaderWaitsForTheFirstDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ann := c.join("ann", waiting(0))
		bob := c.join("bob", waiting(0))
		for m, want := range map[*member]bool{ann: true, bob: false} {
			leads, err := m.isLeader(t.Context())
			require.NoError(t, err)
			require.Equal(t, want, leads, m.id)
		}

		late := &worker{id: "late", store: c.store, job: waiting(0), every: time.Minute, log: bob.log}
		c.server.Isolate()
		require.NoError(t, late.enter(bob.client))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := late.isLeader(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		c.server.Heal()
		leads, err := late.isLeader(t.Context())
		require.NoError(t, err)
		require.False(t, leads)
		require.NoError(t, late.leave())
	})
}

// A worker that is shut out says so, keeps trying, and takes part once it may.
func TestRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		ann := c.join("ann", waiting(0))
		eve := &worker{id: "eve", store: c.store, job: waiting(0), every: time.Minute, log: ann.log}
		_, err := ann.client.Conn().SetACL(electionPath, zk.WorldACL(zk.PermAll&^zk.PermCreate), -1)
		require.NoError(t, err)
		require.NoError(t, eve.enter(ann.client))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err = eve.isLeader(ctx)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.Len(t, c.look(eve).Trouble, 1)
		require.Contains(t, c.look(eve).Trouble[0], "This worker is kept from the election: ")

		_, err = ann.client.Conn().SetACL(electionPath, zk.WorldACL(zk.PermAll), -1)
		require.NoError(t, err)
		leads, err := eve.isLeader(t.Context())
		require.NoError(t, err)
		require.False(t, leads)
		require.Empty(t, c.look(eve).Trouble)
		require.NoError(t, eve.leave())
	})
}

func TestEvents(t *testing.T) {
	j := newJournal()
	w := &lines{journal: j}
	log := slog.New(slog.NewJSONHandler(w, nil)).With("worker", "ann")
	log.Info(saysLeads, "token", int64(1)<<33)
	line, err := json.Marshal(map[string]any{"msg": saysRuns, "run": 7, "outcome": outcomeDone})
	require.NoError(t, err)
	for _, part := range [][]byte{line[:5], line[5:], []byte("\nno event\n{}\n")} {
		n, err := w.Write(part)
		require.NoError(t, err)
		require.Len(t, part, n)
	}
	events := j.all()
	require.Len(t, events, 2)
	require.Equal(t, int64(1)<<33, events[0].Token)
	require.Equal(t, "ann", events[0].Worker)
	require.WithinDuration(t, time.Now(), events[0].Time, time.Minute)
	require.Equal(t, event{Msg: saysRuns, Run: 7, Outcome: outcomeDone}, events[1])

	_, next, err := j.await(t.Context(), 0, func(e event) bool { return e.Run == 7 })
	require.NoError(t, err)
	require.Equal(t, 2, next)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, next, err = j.await(ctx, next, func(event) bool { return true })
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 2, next)
}
