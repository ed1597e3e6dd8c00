package judge

// Excuse says why a term may break a rule: its holder could not know in time. A referee finds the excuse of a term. A third party
// is another client, or the test, in place of an operator.
type Excuse string

// The excuses.
const (
	// None is no excuse: the breach is a violation.
	None Excuse = ""
	// ZnodeDeleted says that a third party deleted the term's znode.
	ZnodeDeleted Excuse = "znode deleted"
	// SessionExpired says that a third party ended the term's session.
	SessionExpired Excuse = "session expired"
	// OverAtGrant says that the znode no longer existed when the term was granted.
	OverAtGrant Excuse = "over at the grant"
	// Paused says that the holder's process was stopped for longer than its session.
	Paused Excuse = "client paused"
	// PausedBriefly says that the holder's process was stopped for less than its session. It covers only the pause.
	PausedBriefly Excuse = "client paused for less than its session"
	// Starved says that the holder's process got no processor time. It covers only that time.
	Starved Excuse = "process starved"
	// RecordedLate says that the term ended in time, but the goroutine that records the end had to wait.
	RecordedLate Excuse = "end recorded late"
)
