package core

// Claim has the facts about a contender that claims its turn, all of one moment.
type Claim struct {
	IsClosing bool // the client closes
	IsOver    bool // the session of the contender's znode is not the present session
	IsDeleted bool // an event reported that the znode is deleted
	IsStale   bool // the connection changed, or the znode may have changed, since the claim was read
	IsTrusted bool // the session is proven alive
}

// Verdict is the answer to a Claim.
type Verdict int

// What becomes of a contender that claims its turn.
const (
	Granted  Verdict = iota // the contender holds the lock from this moment on
	Unproven                // prove the session, then claim again
	Stale                   // look at the queue again
	Deleted                 // the contender is lost with its znode
	Over                    // the contender is lost with its session
	Closing
)

// Decide answers a claim. Only a claim about which everything is known, and that nothing speaks against, is granted. A proof comes last,
// because the others need none.
func (c Claim) Decide() Verdict {
	switch {
	case c.IsClosing:
		return Closing
	case c.IsOver:
		return Over
	case c.IsDeleted:
		return Deleted
	case c.IsStale:
		return Stale
	case !c.IsTrusted:
		return Unproven
	default:
		return Granted
	}
}
