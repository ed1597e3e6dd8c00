package elections

import (
	"context"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// Campaign waits for its turn, leads while lead runs, and resigns. The context of lead ends
// with the term, like the Done of an etcd session. The comments have the lines of etcd.
func Campaign(ctx context.Context, client *recipes.Client, value string, lead func(context.Context, *recipes.Lease) error) error {
	election, err := mutex.New(client, "/services/report", mutex.WithID(value)) // concurrency.NewElection(session, "/services/report")
	if err != nil {
		return err
	}
	return election.Do(ctx, lead) // election.Campaign(ctx, value), lead, election.Resign(ctx)
}

// Put writes data in ZooKeeper in a transaction that succeeds only during this term, like a Txn with
// If(CreateRevision(key) = rev).
func Put(client *recipes.Client, term *recipes.Lease, path string, data []byte) error {
	_, err := client.Conn().Multi(term.Check(), &zk.SetDataRequest{Path: path, Data: data, Version: -1})
	return err
}
