package recipes

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Lease is one acquisition: of a lock, of a permit, or of a term of leadership. It
// is valid until its context ends. Its methods may be called concurrently.
type Lease struct {
	entry *zkutil.Entry
}

// NewLease is for the recipes of this module.
func NewLease(entry *zkutil.Entry) *Lease {
	if entry == nil {
		panic("zkrecipes: for the recipes of this module only")
	}
	return &Lease{entry: entry}
}

// Context ends when the lease does, before the server can grant it to another;
// context.Cause tells why: ErrReleased, ErrSessionLost, ErrSuspended, ErrNodeDeleted
// or ErrClosed. It has the values of the context that acquired, but neither its
// deadline nor its cancellation. The context of a term under a selector's Run has the values
// of Run's context, and ends with that one's cause when that one ends.
//
// It also carries ownership: acquiring the same lock with this context, or one
// derived from it, re-enters. Whoever gets it shares the lease.
func (l *Lease) Context() context.Context { return l.entry.Context() }

// FencingToken grows with every exclusive holder of the path, across the whole
// ensemble: it is the czxid of the lease's znode, and constant for its life. Two terms of one
// latch with nothing but a suspension between them share a znode, and so a token. A
// resource that remembers the highest token and refuses lower ones is safe from a
// holder that was paused and does not know that it has lost the lease.
//
// With read-modify-write in SQL, claim the row before reading it, for a check at the
// write alone lets two holders read the same value:
//
//	UPDATE stock SET token = :token WHERE id = :id AND token <= :token  -- claim
//	SELECT amount FROM stock WHERE id = :id                             -- read
//	UPDATE stock SET amount = :new WHERE id = :id AND token = :token    -- write
//
// Each must affect one row; none means that a later holder was there.
func (l *Lease) FencingToken() int64 { return l.entry.Token() }

// Path is the path of the lease's znode on the server, namespace included.
func (l *Lease) Path() string { return l.entry.Path() }

// TrustedUntil is until when the lease is certainly valid unless it is renewed: it
// moves forward as long as the session is proven alive. Ask for it anew, and compare it
// with time.Now, right before each step that can't be fenced. Once the lease has ended,
// it is no later than that. After a pause of the process it tells the truth even before
// the context has ended; after a suspension of the machine it does on Linux, for other
// systems do not tell how long that was. Zero on an adopted connection whose session
// timeout is unknown.
func (l *Lease) TrustedUntil() time.Time { return l.entry.TrustedUntil() }

// Revoked is closed when a peer has asked for the lease. It is still held: finish
// or undo, and Release. A request that came while the lease was being waited for
// counts as well.
func (l *Lease) Revoked() <-chan struct{} { return l.entry.Revoked() }

// Check returns the guard for a transaction with zk.Conn.Multi: while the lease's
// znode exists the transaction goes through, after release or loss it fails with
// zk.ErrNoNode and changes nothing.
func (l *Lease) Check() *zk.CheckVersionRequest {
	return &zk.CheckVersionRequest{Path: l.entry.Path(), Version: -1}
}

// Release gives the lease back. Call it once per Acquire, typically with defer; the
// znode goes with the last of them. It returns
//
//   - nil once the znode is gone (or another lease on the same hold remains);
//   - what ended the lease, if that was a loss: nothing is left to release;
//   - ErrNotHeld when called again;
//   - ErrNodeNotDeleted when the znode could not be deleted within the operation
//     timeout. The deletion goes on in the background until it is confirmed or the
//     session is over;
//   - ErrClosed when the client is closed meanwhile: the znode goes with the session.
//
// The context has ended when Release returns, whatever it returns.
//
// On a term of leadership Release only asks for the step-down, and returns at once: the
// context ends, the leader's function or the listeners return, and then the znode
// goes. A latch then joins again at the tail, after a pause if the term was short; a selector goes
// on as after any term.
func (l *Lease) Release() error {
	if err := l.entry.Leave(); err != nil {
		return &OpError{Op: "lease: release", Path: l.entry.Path(), Err: err}
	}
	return nil
}

// ParticipantsOf is for the recipes of this module.
func ParticipantsOf(queue []zkutil.Participant) []Participant {
	participants := make([]Participant, len(queue))
	for i, p := range queue {
		participants[i] = ParticipantOf(p)
		participants[i].Leader = i == 0
	}
	return participants
}

// ParticipantOf is for the recipes of this module: the first of a queue, or nobody.
func ParticipantOf(first zkutil.Participant) Participant {
	p := Participant{
		ID: string(first.Data), Path: first.Path, Leader: first.Path != "",
		Token: first.Token, Since: first.Created, Revoked: string(first.Data) == zkutil.Revocation,
	}
	if p.Revoked {
		p.ID = ""
	}
	return p
}

// Participant is one contender of a recipe. Of one whose znode may not be read, as where its
// ACL forbids that, there is the Path alone, and, where the server tells them all the same,
// Token and Since: its ID is empty.
type Participant struct {
	// ID is what it wrote into its znode: the id it was given, or its host's address.
	ID string
	// Path is that of its znode on the server, namespace included.
	Path string
	// Leader says that it is the first in the queue: nobody else can hold the lock or lead. It
	// need not do so itself: also the znode of a process that was killed stands there until
	// its session has expired, and that of a leader that is stepping down until its work has
	// returned.
	Leader bool
	// Token is the fencing token that it has, or will have, as holder or leader.
	Token int64
	// Since is when its znode was created, by the servers' clock: the begin of its wait. It does
	// not tell since when it holds or leads.
	Since time.Time
	// Revoked says that a peer has asked for the lease. The request replaces the ID, which is
	// empty then.
	Revoked bool
}
