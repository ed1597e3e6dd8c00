package fxzkrecipes_test

import (
	"context"
	"fmt"
	"log"

	"go.uber.org/fx"

	"github.com/zkrecipes/zkrecipes/contrib/fxzkrecipes"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Reports is work for a leader. A real one has what its constructor gets from fx, such as a database.
type Reports struct{ began chan struct{} }

// Run makes reports while the process leads.
func (r *Reports) Run(ctx context.Context, _ *recipes.Lease) error {
	fmt.Println("leading")
	select {
	case r.began <- struct{}{}:
	default: // not the first term
	}
	<-ctx.Done() // not the context of the start
	fmt.Println("stopped")
	return nil
}

// newService returns an application whose leader makes reports.
func newService(servers []string, newReports func() *Reports) *fx.App {
	return fx.New(
		fxzkrecipes.Client(servers), // provides a *recipes.Client
		fx.Provide(newReports),
		fx.Invoke(func(lc fx.Lifecycle, client *recipes.Client, reports *Reports) error {
			_, err := fxzkrecipes.NewSelector(lc, client, "/jobs/report", reports.Run, selector.WithAutoRequeue())
			return err
		}),
	)
}

func Example() {
	server, err := zktest.Start() // in a service, the servers
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = server.Close() }()

	reports := &Reports{began: make(chan struct{}, 1)}
	app := newService([]string{server.Addr()}, func() *Reports { return reports })
	// A service calls app.Run in place of the rest.
	if err := app.Start(context.Background()); err != nil {
		log.Fatal(err)
	}
	<-reports.began
	if err := app.Stop(context.Background()); err != nil {
		log.Fatal(err)
	}
	// Output:
	// leading
	// stopped
}
