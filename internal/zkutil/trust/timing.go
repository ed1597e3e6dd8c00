package trust

import "time"

// The times for trust. T is the session timeout, Ledger.Lifetime: the smaller of the timeouts granted in the
// latest handshake and at the session's creation. docs/evidence/trust-derivation.md gives the reasons.
//
//	T/10   between two pings of an own connection while something is held or awaited
//	T/8    without a request is a gap
//	T/6    between two heartbeats, and for one dial or handshake while a hold can be saved
//	T/4    between two reports of the servers to their leader, at the rarest; and between two requests
//	       of a session that is idle
//	T/3    for the answer to the reads of a session without holds; and without a write or a ping, until
//	       a session pings that holds nothing, where pings are transactions
//	3T/8   for the answer to a heartbeat, with a single address; otherwise T/6, and more while
//	       commits are slow
//	T/2    between two audits of a session with holds
//	5T/12  is proven by a committed write on an adopted connection, whose pings are T/3 apart
//	2T/3   is proven by a committed write on an own connection
//	T/12   is left for differing clocks
//	T      between two reads of all watched znodes in a session without holds
//	20 T   to 25 T between two audits of such a session
const (
	BeatsPerTimeout   = 6
	PingsPerTimeout   = 10
	GapsPerTimeout    = 8
	ReportsPerTimeout = 4
	MarginsPerTimeout = 12
	AuditsPerTimeout  = 2
	IdlesPerTimeout   = 4

	BoundPingsPerTimeout = 3 // where pings are transactions, while nothing is held

	TimeoutsPerAudit = 20              // while nothing is held
	TimeoutsOfJitter = 5               // plus up to this many at random, so that clients don't run in lockstep
	MaxBeatsInFlight = 4               // of a holder, while the quorum is slow
	DefaultPeriod    = 5 * time.Second // between two heartbeats while T is unknown
)

// OwnHorizon returns for how long a committed write on an own connection proves the session, from the time of
// sending.
func OwnHorizon(timeout time.Duration) time.Duration { return timeout * 2 / 3 }

// AdoptedHorizon returns the OwnHorizon of an adopted connection.
func AdoptedHorizon(timeout time.Duration) time.Duration { return timeout * 5 / 12 }

// LonePatience returns how long a heartbeat may go without an answer with a single address: a reconnect to the
// same server does not help, but several servers may share the address.
func LonePatience(timeout time.Duration) time.Duration { return timeout * 3 / 8 }

// ReadPatience returns how long reads may go without an answer while nothing is held.
func ReadPatience(timeout time.Duration) time.Duration { return timeout / 3 }

// EarliestEndAfterDisconnect returns how long after a disconnect T is over at the earliest: zk.Conn notices a
// silent server after 2T/3.
func EarliestEndAfterDisconnect(timeout time.Duration) time.Duration { return timeout / 3 }
