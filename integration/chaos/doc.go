// Package chaos finds out what the guarantees are worth: processes contend on three
// servers, a nemesis takes servers, lines, sessions and processes away, and checkers
// look at everything that was recorded.
//
//	make chaos SEED=7 MINUTES=60
//
// # History
//
// Each client is a separate process (this test binary run again) with one session and contenders of every recipe, and 13
// sessions that only stand by. It records each attempt, grant, end and write with the time of the machine's monotonic clock,
// which processes share. The servers' transaction logs show when a znode was created and deleted, independently of the clients.
//
// Each process has one more client, whose functions of Do and of leaders work. The nemesis shuts it down while a function is at work,
// and the process connects anew. The recorded hold of such a function lasts until the function returns, which it does
// a while after the end of its context. All clients log in on each connection, half of the processes over SASL and half with a
// credential, and the nemesis makes logins fail whose handshakes were answered.
//
// # Checkers
//
// Judge looks for two holders at one instant by their own contexts, for tokens that do not grow, for grants before the znode
// ahead was deleted at the servers, for waiters without a notification in quiet times, for attempts that fail without a cause,
// and for lost updates of the guarded row. In a read-write lock, a writer has to be alone, except for a reader under it, and
// waits only for contenders ahead. In a semaphore, no more permits than its limit may be held, by the contexts and at the
// servers, and the contender with the turn takes a permit while all are free. Linearize checks the histories of each lock and
// of the row with porcupine, using the models of Jepsen's Hazelcast tests: owner-aware, re-entrant, fenced. An undecided check
// counts as a failure.
//
// In the midst of a run, the servers are restored from a backup. Tokens begin again then, and so do the rows, whose tokens the nemesis
// resets. The checkers judge each era between two restores by itself, with its own transaction logs.
//
// Excused are the holds of a process that did not run, or whose session or znode the nemesis
// removed, until it can know. There the row has to refuse the stale token, and the servers the
// stale lease's Check: each run has to show both.
package chaos
