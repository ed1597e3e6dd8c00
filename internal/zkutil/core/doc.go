// Package core decides what a client may hold: what is granted, until when, and why a hold ends.
//
// [Session] is the client. Its events, such as OnHandshake or OnDisconnected, return an [Outcome] with what the owner has to do: end the holds,
// and publish states. [Session.Judge] decides whether a contender gets the lock, and a [Hold] is the result. [Session.OnEnd] lists all ends of
// a hold, and says what happens to its znode.
//
// Only an own write committed by the quorum proves a session. Pings, reads and sync prove nothing, because a server
// without a quorum continues to answer them for seconds after the other servers expired the session. A [Ledger] records
// the writes, and trusts the session until 2T/3 after the latest committed write was sent. A [Contact] records the
// requests and answers of one connection, and finds its [Gaps], in which the server may have received nothing. After a
// gap trust ends 8T/9 after the last request before the gap, if that is earlier. T is [Ledger.Lifetime]. Ledger.horizon
// derives 2T/3, and derivation.md has the full derivation, with all premises.
//
// [Ledger.Decide] makes the [Plan] of a moment from [Facts]: end the holds, send a heartbeat, an audit or
// reads, or leave a silent server. The times are in timing.go. [Clock] is the clock by which all times are taken.
//
// [Watch] decides what the users of a shared watch are told.
//
// explore_test.go and the files beside it run a Session, a Hold and the Contacts of each client against a model of ZooKeeper, through every
// course of events within bounds. explore_watch_test.go does the same for the users of a Watch. The scenarios in testdata show courses, with what
// holds in each.
//
// The package only decides. It does no I/O, starts no goroutine, and has no lock except in Clock, which asks the system
// for how long the machine was suspended.
package core
