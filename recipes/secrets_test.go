package recipes_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/group"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/once"
	"github.com/zkrecipes/zkrecipes/recipes/revoke"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
	"github.com/zkrecipes/zkrecipes/recipes/spread"
	"github.com/zkrecipes/zkrecipes/recipes/zkcompat"
)

// No verb of package fmt prints the credentials. For a verb that does not suit text, fmt prints the fields of a struct, and follows
// one pointer in them.
func TestNoVerbPrintsASecret(t *testing.T) {
	bubble.Run(t, func(b *bubble.Bubble) {
		const secret = "hunter2"
		client := b.Client(recipes.WithAuth("digest", []byte("ann:"+secret)))
		path := func(name string) string { return "/printed/" + name }
		take := func(ctx context.Context, _ *recipes.Lease) error { <-ctx.Done(); return nil }
		m := made(mutex.New(client, path("mutex")))
		several := made(multilock.NewMutexes(client, []string{path("1"), path("2")}))
		pair := made(rwlock.New(client, path("pair")))
		cohort := made(mutex.New(client, path("cohort"), mutex.WithCohort(mutex.Cohort{})))
		all := []any{
			client, made(client.In("view")), m, several, pair, pair.ReadLock(), cohort,
			made(semaphore.New(client, path("semaphore"), 1)), made(semaphore.NewMutex(client, path("single"))),
			made(latch.New(client, path("latch"))), made(selector.New(client, path("selector"), take)), made(once.New(client, path("once"))),
			made(group.New(client, path("group"))), made(spread.New(client, path("spread"), spread.WithID("web-1"))), revoke.New(client),
			zkcompat.NewLock(client, path("compat"), nil), recipes.DigestMD5("ann", secret),
			bubble.Acquire(b, m.Acquire), bubble.Acquire(b, several.Acquire), bubble.Acquire(b, cohort.Acquire), bubble.Acquire(b, pair.WriteLock().Acquire),
		}
		hidden := []string{
			secret, fmt.Sprintf("%x", secret), strings.Trim(fmt.Sprintf("%d", []byte(secret)), "[]"),
			strings.Trim(strings.TrimPrefix(fmt.Sprintf("%#v", []byte(secret)), "[]byte"), "{}"),
		}
		for _, printed := range all {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%e", "%c", "%b"} {
				for _, value := range []any{printed, []any{printed}, struct{ V any }{printed}} {
					text := fmt.Sprintf(verb, value)
					for _, h := range hidden {
						require.NotContains(b, text, h, "%s of a %T", verb, printed)
					}
				}
			}
		}
	})
}
