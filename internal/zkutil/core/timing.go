package core

import "time"

// The times for trust. T is the session timeout (Ledger.Lifetime), the least that any server ever granted to the
// session. derivation.md gives the reasons.
//
//	T/24   after the sending of a frame that was answered, a holder's write needs no ping ahead
//	T/10   between two pings while something is held or awaited
//	T/8    without a request is a gap
//	T/6    between two heartbeats, and for one dial or handshake while a hold can be saved
//	T/4    between two reports of the servers to their leader, at the rarest; and between two requests
//	       of a session that is idle
//	5T/18  between two reports, by a clock that runs at 10/9 of the servers'
//	T/3    for the answer to the reads of a session without holds; and without a write or a ping, until
//	       a session pings that holds nothing, where pings are transactions
//	3T/8   for the answer to a holder's write, with a single address; otherwise T/6, and more while
//	       commits are slow
//	T/2    between two audits of a session with holds
//	2T/3   is proven by a committed write
//	T/9    is left for differing clocks after a gap; otherwise a ninth of the least time that a write proves
//	T      between two reads of all watched znodes in a session without holds
//	20 T   to 25 T between two audits of such a session, and T if its server may show a deleted znode
const (
	BeatsPerTimeout    = 6
	PingsPerTimeout    = 10
	GapsPerTimeout     = 8
	MarginsPerTimeout  = 9
	ConfirmsPerTimeout = 24
	AuditsPerTimeout   = 2
	IdlesPerTimeout    = 4

	BoundPingsPerTimeout = 3 // where pings are transactions, while nothing is held

	TimeoutsPerAudit = 20 // while nothing is held
	TimeoutsOfJitter = 5  // plus up to this many at random, so that clients don't run in lockstep
	MaxBeatsInFlight = 4  // of a holder, while the quorum is slow
)

// longestBetweenReports returns the longest time between two reports of a server to its leader: T/4 by the servers' clocks. The client's
// clock may run a ninth faster.
func longestBetweenReports(timeout time.Duration) time.Duration { return timeout * 5 / 18 }

// Horizon returns for how long a committed write proves the session, from the time of sending.
func Horizon(timeout time.Duration) time.Duration { return timeout * 2 / 3 }

// LonePatience returns how long a heartbeat may be unanswered with a single address. A reconnect to the same server
// does not help, but several servers may share the address.
func LonePatience(timeout time.Duration) time.Duration { return timeout * 3 / 8 }

// ReadPatience returns how long reads may be unanswered while nothing is held.
func ReadPatience(timeout time.Duration) time.Duration { return timeout / 3 }

// EarliestEndAfterDisconnect returns how long after a disconnect T is over at the earliest: zk.Conn notices a
// silent server after 2T/3.
func EarliestEndAfterDisconnect(timeout time.Duration) time.Duration { return timeout / 3 }
