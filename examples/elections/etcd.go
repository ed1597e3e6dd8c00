package elections

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// Campaign waits for its turn, leads while lead runs, and resigns. The context that lead
// gets ends when the term does: that is the session's Done.
func Campaign(ctx context.Context, client *recipes.Client, value string, lead func(context.Context, *recipes.Lease) error) error {
	election, err := mutex.New(client, "/services/report", mutex.WithID(value))
	if err != nil {
		return err
	}
	return election.Do(ctx, lead)
}

// Put writes data in ZooKeeper if this term is still on, in one transaction: it is the Txn
// with If(CreateRevision(key) = rev).
func Put(client *recipes.Client, term *recipes.Lease, path string, data []byte) error {
	_, err := client.Conn().Multi(term.Check(), &zk.SetDataRequest{Path: path, Data: data, Version: -1})
	return err
}
