package certmagiczkrecipes_test

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"

	"github.com/caddyserver/certmagic"

	"github.com/zkrecipes/zkrecipes/contrib/certmagiczkrecipes"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// configure makes certmagic lock in ZooKeeper. The certificates are in a folder that all hosts share.
func configure(client *recipes.Client, shared string) error {
	storage, err := certmagiczkrecipes.New(client, "/locks/certmagic", &certmagic.FileStorage{Path: shared})
	if err != nil {
		return err
	}
	certmagic.Default.Storage = storage
	return nil
}

func Example() {
	ctx := context.Background()
	server, err := zktest.Start() // in a service, the servers
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = server.Close() }()
	client, err := recipes.Connect(ctx, []string{server.Addr()}, recipes.WithLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = client.Close() }()

	shared, err := os.MkdirTemp("", "certificates") // in a service, a folder that all hosts share
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(shared) }()
	if err := configure(client, shared); err != nil {
		log.Fatal(err)
	}
	authority := &issuer{} // in a service, certmagic's default, an ACME issuer
	for range 2 {          // hosts
		config, stop := newConfig(certmagic.Default.Storage, authority)
		defer stop()
		if err := config.ObtainCertSync(ctx, "example.com"); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("certificates issued:", authority.issued)
	// Output: certificates issued: 1
}
