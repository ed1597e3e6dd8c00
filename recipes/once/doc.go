// Package once provides Once, which runs a function at most once for each occurrence of an event, on however many hosts:
// the nightly report of a service with twenty replicas, each of which has the same schedule.
//
//	o, err := once.New(client, "/jobs/report")
//	…
//	err = o.Do(ctx, once.At(tick), func(ctx context.Context, lease *recipes.Lease) error {
//		return report(ctx, lease.FencingToken())
//	})
//	if errors.Is(err, once.ErrDone) {
//		return nil // another host has done the work for this tick, or does so now
//	}
//
// A lock alone is not enough, because a lock only keeps runs from overlapping: if a run is short, a host whose clock is half a second
// late finds the lock free again and repeats the run. Once stores the latest occurrence in a znode that outlives all processes.
//
// # Occurrences
//
// An occurrence is a text that names one event and grows from one event to the next: [At] of a tick, an hour such as
// 2026-11-26T03:00 in UTC, the number of a build. Two occurrences that consist of digits alone are compared as numbers,
// all others byte by byte; a number comes before all others. Use one format per path, and no local times, which repeat an hour
// each autumn. Only the latest occurrence is kept: an earlier one counts as done, whether it has run or not.
//
// All hosts have to name the same event alike. At(time.Now()) differs on each host; At(time.Now().Truncate(time.Hour)) is the
// same on all hosts whose clocks agree to the hour.
//
// # Guarantees
//
// See package recipes for the lock and the lease. In addition:
//
//  1. At most one function is called for an occurrence, on all hosts together, whatever fails: lost answers, expired
//     sessions, crashes and paused processes. The start is recorded before the function is called, in one transaction that
//     requires the lease's znode and the version of the record on which the decision was made. If that transaction's answer is
//     lost, the client finds out whether it was executed.
//  2. Runs of a path do not overlap as long as leases are valid: see the second guarantee of package recipes. A function that
//     goes on after its context has ended may overlap with the run of the next occurrence; its fencing token is lower.
//  3. A Do that returns without having called the function has not used the occurrence up. If its start is recorded, or may be,
//     the client takes the start back in the background: before the next Do or Last of the client on the path, before it
//     gives up the lock, and before it closes. If that takes longer than an operation timeout, because no server answers or the
//     servers refuse, the lock is released, Close ends, and the log says what stays.
//  4. Once an occurrence is done, Do returns ErrDone after a single read, without a lock.
//
// # Non-guarantees
//
// At most once means that a run may be missing: if the process ends between the record of the start and the end of the
// function, or if the function fails, nobody runs the occurrence again. With [WithRetry], later calls of Do run the occurrence
// again until a successful run is recorded: at least once. There is no third way: exactly once needs a transaction that includes
// the effect of the function. If the effect is in ZooKeeper, use [recipes.Lease.Check]. In a database, store the occurrence with
// the effect.
//
// Once is not a scheduler: an occurrence runs only if a host calls Do.
//
// The record lasts only as long as its znode. Deleting path/last erases the memory of past runs.
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
// token is the czxid of the znode that had the lock. A function that has returned an error has no finished, and the text of the error
// as failure. A start is written by a Multi of two parts: check of the lock's znode, and setData of path/last with the version that
// was read. The end is written likewise, with the next version.
//
// # Many hosts
//
// Every waiting Do watches path/last. A start wakes all waiting calls at once, and all return. This herd is intended: without the watch,
// the queue would last for as long as the run.
//
// # Traces
//
// For the hooks of [recipes.Trace] a Do whose occurrence is done has not acquired the lock: its error matches ErrNotAcquired there.
//
// # Concurrency
//
// A Once is immutable and may be used by any number of goroutines, each of which counts as a host.
package once
