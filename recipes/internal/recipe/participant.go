package recipe

import (
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// toParticipant returns the public form of a contender as if it were the first, and the zero Participant
// for the zero contender. Base.Participants corrects Leader.
func toParticipant(first queue.Participant) recipes.Participant {
	p := recipes.Participant{
		ID: string(first.Data), Path: first.Path, Leader: first.Path != "",
		Token: first.Token, Since: first.Created, Priority: first.Priority, Revoked: string(first.Data) == session.Revocation,
		NotEphemeral: first.IsLasting,
	}
	if p.Revoked {
		p.ID = ""
	}
	return p
}
