package selector_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// newClient returns a client of a ZooKeeper in this process, and a function that closes both. A service would call
// recipes.Connect with its servers.
func newClient() (client *recipes.Client, stop func()) {
	server, err := zktest.Start()
	if err != nil {
		log.Fatal(err)
	}
	client, err = recipes.Connect(context.Background(), []string{server.Addr()})
	if err != nil {
		log.Fatal(err)
	}
	return client, func() { _ = errors.Join(client.Close(), server.Close()) }
}

// A job that one of many instances runs, until the service is asked to stop.
func Example() {
	client, stop := newClient()
	defer stop()
	ctx, cancel := context.WithCancel(context.Background()) // in main: signal.NotifyContext

	job := func(ctx context.Context, term *recipes.Lease) error {
		fmt.Println("leads, with a token:", term.FencingToken() > 0)
		time.AfterFunc(time.Millisecond, cancel) // the service is stopped
		<-ctx.Done()                             // work, for as long as the term lasts
		fmt.Println("stops:", context.Cause(ctx))
		return ctx.Err()
	}
	s, err := selector.New(client, "/jobs/report", job, selector.WithAutoRequeue())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("stopped in order:", s.Run(ctx))
	// Output:
	// leads, with a token: true
	// stops: context canceled
	// stopped in order: <nil>
}

// The return of the function ends leadership. With AutoRequeue the selector then joins again behind
// the others. In this example there are none.
func ExampleLeaderSelector_AutoRequeue() {
	client, stop := newClient()
	defer stop()
	var s *selector.LeaderSelector
	terms, token := 0, int64(0)
	s, err := selector.New(client, "/jobs/report", func(_ context.Context, term *recipes.Lease) error {
		terms++
		fmt.Println("term", terms, "with a higher token:", term.FencingToken() > token)
		token = term.FencingToken()
		if terms == 3 {
			return s.Close() // from inside it only asks for the end
		}
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	s.AutoRequeue() // at any time; WithAutoRequeue is the same
	err = s.Run(context.Background())
	fmt.Println("closed:", errors.Is(err, recipes.ErrClosed))
	// Output:
	// term 1 with a higher token: true
	// term 2 with a higher token: true
	// term 3 with a higher token: true
	// closed: true
}

// Errors and panics of the function are reported to its owner. The selector continues after a growing pause, and
// gives up here after three failures in a row.
func ExampleWithErrorHandler() {
	client, stop := newClient()
	defer stop()
	attempt := 0
	s, err := selector.New(client, "/jobs/report",
		func(context.Context, *recipes.Lease) error {
			attempt++
			return fmt.Errorf("attempt %d: no database", attempt)
		},
		selector.WithAutoRequeue(),
		selector.WithRequeueBackoff(recipes.RetryPolicy{InitialInterval: time.Millisecond, MaxAttempts: 3}),
		selector.WithErrorHandler(func(err error) { fmt.Println("reported:", err) }),
	)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("gave up:", s.Run(context.Background()))
	// Output:
	// reported: selector: lead /jobs/report: attempt 1: no database
	// reported: selector: lead /jobs/report: attempt 2: no database
	// reported: selector: lead /jobs/report: attempt 3: no database
	// gave up: selector: lead /jobs/report: attempt 3: no database
}

// A leader is asked to step down. Its context ends, it returns, and another candidate may lead.
func ExampleLeaderSelector_InterruptLeadership() {
	client, stop := newClient()
	defer stop()
	begun, done := make(chan struct{}), make(chan struct{})
	s, err := selector.New(client, "/jobs/report", func(ctx context.Context, _ *recipes.Lease) error {
		defer close(done)
		close(begun)
		<-ctx.Done()
		fmt.Println("asked to stop:", errors.Is(context.Cause(ctx), recipes.ErrReleased))
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := s.Start(); err != nil {
		log.Fatal(err)
	}
	<-begun
	s.InterruptLeadership()
	<-done
	if err := s.Close(); err != nil {
		log.Fatal(err)
	}
	queue, err := s.Participants(context.Background())
	fmt.Println("left:", len(queue), err)
	// Output:
	// asked to stop: true
	// left: 0 <nil>
}
