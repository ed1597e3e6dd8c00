package snippets

import (
	"context"
	"errors"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/group"
)

// followMembers is GroupMember: start(), getCurrentMembers() at each change, and close().
func followMembers(ctx context.Context, client *recipes.Client, update func([]group.Member)) (err error) {
	g, err := group.New(client, "/services/web", group.WithID("web-1"))
	if err != nil {
		return err
	}
	if err := g.Join([]byte("10.0.0.7:8080")); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Leave()) }()
	for members := range g.Watch(ctx) { // the present members first
		update(members)
	}
	return nil
}
