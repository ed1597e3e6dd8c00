// Package spread provides Spread, which balances the leaders of many elections across processes, such as the leaders of a hundred shards
// across five replicas of a service.
//
// Without a Spread, the first process to start leads every election, and after a rolling restart the last process leads none, because
// each election goes to its longest-waiting candidate.
//
//	balance, err := spread.New(client, "/services/shards/spread", id)
//	…
//	for shard := range shards {
//		l, err := latch.New(client, fmt.Sprint("/services/shards/", shard), latch.WithID(id), latch.WithPriority(0), …)
//		…
//		_, err = balance.Add(l)
//	}
//	err = balance.Start()
//
// # Guarantees
//
//   - Once processes stop coming and going, no process leads more than its share: the number of elections divided by the number of
//     processes, rounded up. About once per second, a process above its share hands one election over to the candidate with the fewest
//     leaderships.
//   - A handover is a call of the election's TransferTo: an orderly step-down, with the usual exclusion of the election. A process at or
//     below its share hands nothing over, so the leaders stay put once the elections are balanced.
//
// # Non-guarantees
//
// All elections count alike, however much work their leaders have. Each process must take part in all elections, or at least in most,
// because an election can only go to its own candidates. Candidates without a priority are never asked to yield. Where candidates have
// different priorities, the priorities prevail, so give all candidates the same priority.
//
// # On the wire
//
// The processes form a group at the path (see package group). The data of a member is the number of elections led by the process, in
// decimal. Nothing else is written: a process outside the group is not affected, and is never chosen for a handover.
//
// # Failures
//
// A failed transfer is logged once and retried with backoff, up to a minute. While no server answers, no election is handed over.
//
// # Concurrency
//
// All methods may be called concurrently. Start begins a goroutine. Close waits for the goroutine, and for a transfer in progress.
package spread
