// Package once provides Once, which runs a function at most once for each occurrence of an event, on any number of
// hosts, such as the nightly report of a service with twenty replicas, each of which has the same schedule.
//
//	o, err := once.New(client, "/jobs/report")
//	…
//	err = o.Do(ctx, once.Tick(time.Now(), time.Hour), func(ctx context.Context, lease *recipes.Lease) error {
//		return report(ctx, lease.FencingToken())
//	})
//	if errors.Is(err, once.ErrDone) {
//		return nil // another host did the work for this tick, or does so now
//	}
//
// A lock alone is not enough, because a lock only keeps runs from overlapping: if a run is short, a host whose clock is half a second
// late finds the lock free again and repeats the run. Once stores the latest occurrence in a znode that outlives all processes.
//
// # Occurrences
//
// An occurrence is a text that names one event and grows from one event to the next. All hosts have to name the same event
// alike. Three kinds of occurrences have an order:
//
//   - Instants: [At] of a tick, and other RFC 3339 times with a zone, such as 2026-11-26T03:00Z. They are compared as times.
//   - Texts with numbers, such as build-10, v1.10.0 or 2026-11-26T03. They are compared number by number, so that build-10 is
//     after build-9. The text around the numbers has to stay the same.
//   - Texts without digits, byte by byte.
//
// An occurrence that has another format than the latest one is refused with ErrFormat, because both may name the same event:
// 2026-11-26T03:00 has no zone, and is not compared with 2026-11-26T03:00Z. Call [Once.Forget] when the format changes.
//
// Only the latest occurrence is recorded. Do refuses an earlier one with ErrSuperseded, which does not match ErrDone, because the
// earlier occurrence may never have run. The first refusal for each record is also logged.
//
// # Clocks and schedules
//
// Each host decides by its own clock when to call Do. At(time.Now()) differs on each host. [Tick] of time.Now() and a period is the
// same on all hosts that wake up for the same tick, if no clock is more than half a minute early or a period late.
//
// The servers' clock bounds the effect of a wrong clock on a host. An instant that is more than a minute ahead of it does not
// start, and fails with ErrTooEarly, because one host whose clock is a year ahead would supersede the ticks of a year. With
// [WithDeadline] an instant does not start late either. The time is that of the znode that Do creates, so it costs no request
// and follows the leader's clock. If that clock is wrong, starts fail, and say so. Other texts than instants are not compared
// with any clock. After an occurrence from the future, every Do fails with ErrSuperseded until a client calls [Once.Forget].
//
// Name ticks in UTC. Local times without a zone repeat an hour each autumn, and that hour runs once, because it is done the second
// time. In spring they skip an hour. A job at 02:30 local time belongs to a day, so use the date as the occurrence, such as
// 2026-11-26. The same holds for cron, which may start a job a minute late. Name the day or the hour that a line stands for, not
// the minute in which the command starts.
//
// A tick for which no host calls Do is missed, and does not run later. To make up for one, call Do with the previous tick when the
// process starts: it runs unless it is done or superseded. WithDeadline bounds how old it may be. A run that takes longer than
// the time between ticks delays the next ones: they wait for the lock, and run in the order of the queue. Of those that wait, an earlier
// tick behind a later one is superseded. Bound the wait with DoWithin, skip such ticks with
// [WithSkip], bound the run with [WithMaxHold], or run each in its own path.
//
// # Guarantees
//
// See package recipes for the lock and the lease. In addition:
//
//  1. At most one function is called for an occurrence, on all hosts together, in spite of lost answers, expired sessions,
//     crashes and paused processes. The start is recorded before the function is called, in one transaction that requires the
//     lease's znode and the version of the record on which the decision was made. If that transaction's answer is lost, the
//     client finds out whether it was executed.
//  2. Runs of a path do not overlap as long as leases are valid (see the second guarantee of package recipes). A function
//     that continues after the end of its context may overlap with the run of the next occurrence; its fencing token is
//     lower.
//  3. A Do that returns without calling the function does not use up the occurrence. If its start is recorded, or may be, the
//     client takes the start back in the background: before the next Do or Last of the client on the path, before it gives up
//     the lock, and before it closes. If that takes longer than an operation timeout, because no server answers or the servers
//     refuse, the lock is released, Close ends, and the log says what remains.
//  4. Once an occurrence is done, Do returns ErrDone after a single read, without a lock.
//  5. An occurrence that does not run is not called done: ErrDone says that it was started. Every other outcome is another error.
//
// # Non-guarantees
//
// At most once means that a run may be missing: if the process ends between the record of the start and the end of the
// function, or if the function fails, no host runs the occurrence again. With [WithRetry], later calls of Do run the occurrence
// again until a successful run is recorded: at least once. [WithRetryPause] and [WithMaxRuns] keep a failing job from running
// once for each host. There is no third way: exactly once needs a transaction that includes the effect of the function. If the
// effect is in ZooKeeper, use [recipes.Lease.Check]. In a database, store the occurrence with the effect.
//
// Once is not a scheduler. An occurrence runs only if a host calls Do.
//
// The record lasts only as long as its znode. Deleting path/last erases the memory of past runs, as Forget does. A Do that waits
// for the lock meanwhile fails.
//
// # Failures
//
//	what happens                            with at most once               with WithRetry
//	two hosts ask for one occurrence        one runs; the other gets ErrDone as soon as the
//	                                        start is recorded               end is recorded
//	the function fails or panics            done                            the next Do runs it again
//	the process ends while it runs          done                            the next Do runs it again
//	the lease is lost while it runs         done; Do returns the loss       the next Do runs it again
//	the start's answer is lost              the client repeats the transaction, and runs
//	ctx ends before the start               the next Do runs it; until a start is taken back, other
//	                                        hosts that ask get ErrDone
//	the end can't be recorded               done; ErrNotRecorded            the next Do runs it again
//	a later occurrence was started          ErrSuperseded, whether it has run or not
//
// # On the wire
//
// The lock on path is a mutex: znodes _c_<uuid>-lock-<number>, as of package mutex, which contends with it on the same path.
// The record is the persistent znode path/last. It is empty before the first start, and later has a JSON object, with unknown
// fields ignored:
//
//	{"occurrence":"2026-11-26T03:00", "id":"web-1", "token":4294967310, "startedAt":"2026-11-26T03:00:00.01Z",
//	 "finishedAt":"2026-11-26T03:00:07.2Z", "finished":true}
//
// token is the czxid of the znode that had the lock. If the function returned an error, finished is absent and failure holds
// its text. Beyond the first run of an occurrence, runs has their number. A start is written by a Multi of two parts: check of
// the lock's znode, and setData of path/last with the version that was read. The end is a Multi, too: delete of the lock's
// znode, and setData with the next version. If it fails, the end is written like a start, and the znode is deleted afterwards.
//
// # Many hosts
//
// Every waiting Do watches path/last. A start wakes all waiting calls at once, and all return. This herd is intended: without the watch,
// the queue would last for as long as the run.
//
// # Traces
//
// For the hooks of [recipes.Trace] a Do whose occurrence is done did not acquire the lock. Its error matches ErrNotAcquired there.
//
// # Concurrency
//
// A Once is immutable and may be used by any number of goroutines, each of which counts as a host.
package once
