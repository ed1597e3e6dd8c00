package revoke

import (
	"context"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// Revoker asks contenders to give up their leases. Create it with [New].
type Revoker struct {
	client *recipes.Client
}

// New returns a Revoker that writes in the client's session. With a nil client each
// AttemptRevoke fails with ErrInvalidArgument.
func New(c *recipes.Client) *Revoker { return &Revoker{client: c} }

// AttemptRevoke asks the contender at participantPath, a recipes.Participant.Path or
// Lease.Path, to release. It returns nil once the request is written, or if that
// znode is gone already, and does not wait for the release. The path is taken as it
// is on the server, without adding the client's namespace; one that is not the znode
// of a contender is refused with ErrInvalidPath before anything is written. Where an ACL
// forbids to write, the error is zk.ErrNoAuth.
func (r *Revoker) AttemptRevoke(ctx context.Context, participantPath string) error {
	session, err := r.session(participantPath)
	if err == nil {
		err = session.Revoke(ctx, participantPath)
	}
	if err != nil {
		return &recipes.OpError{Op: "revoke: attempt", Path: participantPath, Err: err}
	}
	return nil
}

func (r *Revoker) session(path string) (*zkutil.Session, error) {
	session, _, err := r.client.Attach(zkutil.RecipeAccess(), path)
	return session, err
}
