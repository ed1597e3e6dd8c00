package revoke

import (
	"context"
	"slices"
	"strings"

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

// AttemptRevoke asks the contender at participantPath, a recipes.Participant.Path or Lease.Path, to release. It
// returns nil when the request is written, or when the znode does not exist, and does not wait for the release. For a
// path that is not a contender's, AttemptRevoke writes nothing and returns ErrInvalidPath. If an ACL forbids the
// write, the error is zk.ErrNoAuth.
//
// For a client with a namespace, participantPath is either a path on the server, as the recipes return
// it, or a path below the namespace. A path that begins with the namespace is first taken for one on the
// server, and any other for one below the namespace. If there is no such znode, the other one is asked.
func (r *Revoker) AttemptRevoke(ctx context.Context, participantPath string) error {
	session, below, err := recipe.Attach(r.client, participantPath)
	if err == nil {
		readings := []string{below, participantPath}
		if namespace := strings.TrimSuffix(below, participantPath); strings.HasPrefix(participantPath, namespace+"/") {
			slices.Reverse(readings)
		}
		err = queue.Revoke(ctx, session, slices.Compact(readings)...)
	}
	if err != nil {
		return &recipes.OpError{Op: "revoke: attempt", Path: participantPath, Err: err}
	}
	return nil
}
