// Package zkrecipes is the front door of a library of coordination recipes on ZooKeeper, modelled on Apache Curator. It
// contains no code: each recipe is a package of its own, and package recipes opens the client that all of them share.
//
//	recipes             Client, Lease, errors, connection states, traces: start here
//	recipes/mutex       one holder at a time
//	recipes/rwlock      many readers, or one writer
//	recipes/semaphore   at most n holders
//	recipes/multilock   several locks at once, all or none
//	recipes/latch       an election, for code that asks "do I lead?"
//	recipes/selector    an election, for a function that runs while the process leads
//	recipes/once        runs a function at most once per occurrence, on however many hosts
//	recipes/group       registers a member, and watches the others
//	recipes/spread      spreads many elections over their processes
//	recipes/revoke      asks a holder to release
//	recipes/zkcompat    has the methods of go-zookeeper's zk.Lock
//	recipes/inspect     shows who holds a lock and who waits, from outside
//	recipes/zktest      a ZooKeeper inside the test process, which can inject faults
//
// The command zkr (cmd/zkr) holds a lock around a shell command, and shows what is wrong with an ensemble.
// contrib/otelzkrecipes and contrib/promzkrecipes export metrics, contrib/saslkrb5 logs in with Kerberos,
// contrib/gocronzkrecipes runs the jobs of gocron on one host, contrib/certmagiczkrecipes has
// locks for the storage of certmagic, contrib/fxzkrecipes has hooks for applications of fx.
//
// A lock is granted only while the session is proven to be alive, and the context of its lease ends before another client
// can be granted the same lock. docs/guarantees.md has all guarantees and limits.
package zkrecipes
