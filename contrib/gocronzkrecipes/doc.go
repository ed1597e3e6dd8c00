// Package gocronzkrecipes runs the jobs of gocron schedulers on one host at a time, or once per tick, through package recipes.
//
// Both ways need the same jobs on all hosts:
//
//   - An [Elector]: the leader runs all jobs of the scheduler. A job needs no tick that all hosts name alike. A change of the
//     leader can skip a tick or run it again.
//   - A [OnceTask]: each tick runs at most once on all hosts together, on any of them. Changes of hosts do not matter.
//
// Do not make a gocron.Locker of a mutex. A lock keeps runs from overlapping, but a host that wakes up for a tick when the run of
// another host is over finds the lock free, and runs the same tick again: three hosts run each tick up to three times.
//
// # Elector
//
//	election, err := latch.New(client, "/elections/jobs")
//	…
//	elector := gocronzkrecipes.NewElector(election) // before Start, to see the first term
//	err = election.Start()
//	…
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//	…
//	_, err = scheduler.NewJob(gocron.CronJob("0 3 * * *", false), gocron.NewTask(elector.Task(report)))
//
// Gocron asks the elector before a job runs, and never again. A job that has to stop at the loss of the leadership is made
// with [Elector.Task]: its context ends with the term. A voluntary step-down waits for such a job before another host can lead.
//
// Before the first election is decided no host leads, and ticks are skipped: wait for LeaderLatch.Decided before
// Scheduler.Start. A tick is also skipped if it comes while no host leads, for up to a session timeout after the leader was killed.
//
// At the end of the program, call Shutdown of the scheduler, Close of the latch and Shutdown of the client, in this order.
//
// # Failures
//
//	what happens                       Elector.Task                           OnceTask
//	the session is lost during a run   the context ends with ErrSessionLost   the context ends with ErrSessionLost
//	the host is killed during a run    the next leader runs the next tick     the next tick runs on another host
//	no server answers at a tick        skipped once the term has ended        waits for a server, or for the end of the
//	                                                                          job's context
//	the latch steps down               the context ends; the job returns;
//	                                   then another host leads
//	the scheduler shuts down           the context ends; Shutdown waits for the job, for gocron.WithStopTimeout
//
// A job that does not follow its context may still run when another host runs the job. Then the fencing token decides: see
// recipes.Lease.FencingToken.
//
// # Concurrency
//
// All functions and methods may be called from any goroutine.
package gocronzkrecipes
