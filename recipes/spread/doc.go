// Package spread provides Spread, which balances the leaders of many elections across processes, such as the leaders of a hundred shards
// across five replicas of a service.
//
// Without a Spread, the first process to start leads every election, and after a rolling restart the last process leads none, because
// the longest-waiting candidate wins each election.
//
//	balance, err := spread.New(client, "/services/shards/spread", spread.WithID(id))
//	…
//	for shard := range shards {
//		l, err := latch.New(client, fmt.Sprint("/services/shards/", shard), latch.WithID(id), latch.WithPriority(0), …)
//		…
//		_, err = balance.Add(l)
//	}
//	err = balance.Start()
//	…
//	err = balance.Drain(ctx) // before a shutdown
//
// # How it works
//
// Each election has an owner, one of its candidates. Every process computes the owners from the list of processes and their elections, by
// rendezvous hashing with bounded loads, and so all agree without talking to each other. An owner that does not lead calls TransferTo with its own
// ID: only a process that runs takes elections over. It takes over one at a time, and waits until it leads before it takes the next.
//
// # Guarantees
//
//   - Once processes stop joining and leaving, each leads its share, which is the number of elections divided by the number of processes,
//     rounded up or down. From then on nothing moves.
//   - A process that joins or leaves moves its share and little more: with 100 elections, 4 to 6 processes move a quarter more than necessary.
//   - A process joins in once it has been a member for two session timeouts, so that a process in a crash loop gets nothing and
//     moves nothing. A process that lives longer than that gets its share, and when it dies, its elections have no leader until
//     its session expires.
//   - A takeover is an orderly step-down, with the usual exclusion of the election. A process takes over two elections a second at most. An election
//     that could not be taken over within a session timeout is tried again after pauses that grow from a session timeout to ten minutes;
//     meanwhile the other elections are taken over.
//   - Drain hands over all that a process leads, to the owners without it.
//   - Priorities prevail. An owner leaves an election alone while another candidate has a higher priority.
//   - An election led by a process outside of the Spread is left alone.
//
// # Non-guarantees
//
// All elections count alike, however much work their leaders have. Where processes have candidates in different elections, each election
// has one of its own candidates as leader, and the shares are approximate. Candidates without a priority are never asked to yield. Where
// priorities differ, the leaders are where the priorities put them, and not balanced. Give all candidates the same priority.
//
// # On the wire
//
// The processes form a group at the path (see package group). The data of a member names the elections of its candidates, by the word
// "elections" and 64 bits of the SHA-256 of each name, in hexadecimal. A draining process names none. The data changes with Add, remove and
// Drain alone, and a balanced fleet sends no requests but those of its session, its group and its elections.
//
// # Failures
//
// A failed takeover is logged, once until the failure changes. While no server answers, no election moves.
//
// # Concurrency
//
// All methods may be called concurrently. Start begins a goroutine. Close waits for the goroutine, and for a transfer in progress.
package spread
