// Package chaos finds out what the guarantees are worth: processes contend on three
// servers, a nemesis takes servers, lines, sessions and processes away, and checkers
// look at everything that was recorded.
//
//	make chaos SEED=7 MINUTES=60
//
// # History
//
// Each client is a process of its own, this test binary run again, with one session and
// contenders of every recipe, and 13 sessions that do nothing but stand by. It writes down each attempt, grant, end and write with the time of
// the machine's monotonic clock, which processes share. The servers' transaction logs
// tell the rest: when a znode was made and when it went, whoever was alive to see it.
//
// # Checkers
//
// Judge looks for two holders at one instant by their own contexts, for tokens that do
// not grow, for grants before the znode ahead was gone at the servers, for waiters that
// are not told in quiet times, for attempts that fail of themselves, and for lost updates
// of the guarded row. Of a read-write lock, a writer has to be alone, but for the reader under it, and waits for nobody but
// those ahead. Of a semaphore no more permits may be held than its limit says, by the contexts and at the servers, and whoever
// has the turn while all permits are free takes one. Linearize gives the histories of each lock and of the row
// to porcupine, with the models that Jepsen's tests of Hazelcast use: owner-aware,
// re-entrant, fenced. What was not decided in time counts as a failure.
//
// In the midst of a run, the servers are restored from a backup. Tokens begin again then, and so do the rows, whose tokens the nemesis
// resets. The checkers judge each era between two restores by itself, with its own transaction logs.
//
// Excused are the holds of a process that did not run, or whose session or znode the nemesis
// removed, until it can know. There the row has to refuse the stale token, and the servers the
// stale lease's Check: each run has to show both.
package chaos
