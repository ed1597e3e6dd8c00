package revoke

import (
	"context"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// Revoker asks contenders to give up their leases. Create it with [New].
type Revoker struct {
	client *recipes.Client
}

// New returns a Revoker that writes in the client's session. With a nil client each AttemptRevoke fails
// with ErrInvalidArgument.
func New(c *recipes.Client) *Revoker { return &Revoker{client: c} }

// AttemptRevoke asks the contender at participantPath, a recipes.Participant.Path or Lease.Path, to
// release. It returns nil when the request has been written, or when the znode is gone, and does not
// wait for the release. participantPath is a path on the server: the client's namespace is not added.
// For a path that is not a contender's, AttemptRevoke writes nothing and returns ErrInvalidPath. If an
// ACL forbids the write, the error is zk.ErrNoAuth.
func (r *Revoker) AttemptRevoke(ctx context.Context, participantPath string) error {
	session, _, err := recipe.Attach(r.client, participantPath)
	if err == nil {
		err = queue.Revoke(ctx, session, participantPath)
	}
	if err != nil {
		return &recipes.OpError{Op: "revoke: attempt", Path: participantPath, Err: err}
	}
	return nil
}
