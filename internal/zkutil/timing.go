package zkutil

import "time"

// The times by which trust is kept. T is the session timeout, as liveness.lifetime of package session
// has it: the lesser of the latest handshake's and of the session's creation.
// docs/trust-derivation.md says why.
//
//	T/10   between two pings of an own connection while something is held or awaited
//	T/8    without a request is a gap
//	T/6    between two heartbeats, and for one dial or handshake while a hold can be saved
//	T/4    between two reports of the servers to their leader, at the rarest; and between two requests
//	       of a session that is idle
//	T/3    for the answer to the reads of a session that holds nothing
//	3T/8   for the answer to a heartbeat, where there is one address; elsewhere T/6, and more while
//	       commits are slow
//	T/2    between two audits of a session that holds something
//	5T/12  is proven by a committed write on an adopted connection, whose pings are T/3 apart
//	2T/3   is proven by a committed write on an own connection
//	T/12   is left for clocks that differ
//	T      between two times that a session which holds nothing reads what it watches
//	20 T   to 25 T between two audits of such a session
const (
	BeatsPerTimeout   = 6
	PingsPerTimeout   = 10
	GapsPerTimeout    = 8
	ReportsPerTimeout = 4
	MarginsPerTimeout = 12
	AuditsPerTimeout  = 2
	IdlesPerTimeout   = 4

	TimeoutsPerAudit = 20              // while nothing is held
	TimeoutsOfJitter = 5               // and at random so many more, so that clients don't march in step
	MaxBeatsInFlight = 4               // of a holder, while the quorum is slow
	DefaultPeriod    = 5 * time.Second // between two heartbeats while T is unknown
)

// OwnHorizon is how long after it was sent a committed write on an own connection proves the
// session.
func OwnHorizon(timeout time.Duration) time.Duration { return timeout * 2 / 3 }

// AdoptedHorizon is OwnHorizon for an adopted connection.
func AdoptedHorizon(timeout time.Duration) time.Duration { return timeout * 5 / 12 }

// LonePatience is how long a heartbeat may go without an answer where there is one address: to
// come back to the same server does not help, but there may be several behind it.
func LonePatience(timeout time.Duration) time.Duration { return timeout * 3 / 8 }

// ReadPatience is how long reads may go without an answer while nothing is held.
func ReadPatience(timeout time.Duration) time.Duration { return timeout / 3 }

// EarliestEndAfterDisconnect is how long after a disconnect T is over at the earliest: zk.Conn
// notices a silent server after 2T/3.
func EarliestEndAfterDisconnect(timeout time.Duration) time.Duration { return timeout / 3 }

// Latest is the last of some moments, the zero Time if there is none.
func Latest(times ...time.Time) time.Time {
	var last time.Time
	for _, t := range times {
		if t.After(last) {
			last = t
		}
	}
	return last
}

// Earliest is the first of two moments.
func Earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
