// Package election runs the campaigns of leader elections. A [Candidate] has one term of leadership after the other, each a
// hold of a queue.
//
// # Promises
//
//   - The znode of a term outlives the leader's work. It exists until Candidate.Vacate, which the recipe calls at the end
//     of the work. So no successor leads beside a leader that is still stepping down, unless the session expires or another
//     client deletes the znode. Then the term's context is cancelled, and fencing tokens protect against work that ignores
//     it.
//   - A campaign continues without a server, and after refusals, until Candidate.Stop or the end of the session.
//   - After a refusal the candidate leaves the queue until the next attempt, so that a candidate that can't lead keeps no
//     other from leading.
//   - A term that a suspended connection ended keeps its znode, and the next term begins on that znode if it still exists.
//   - A candidate with a priority yields to a higher priority, and to a transfer, by the same step-down, and joins again at the
//     tail. A request to yield never concerns a candidate without a priority.
//   - An election at rest sends no request for its priorities: candidates list the queue after events alone.
//
// # Concurrency
//
// All methods of a Candidate may be called concurrently, except that AwaitTerm, AwaitTermAfter and Vacate belong to the
// goroutine of the campaign. Candidate.mu protects the state of a candidate. No request is sent and no function of the user
// runs under Candidate.mu.
package election
