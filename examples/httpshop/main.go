// Command httpshop is a small HTTP service that guards a purchase with a lock. Any number of its processes share one
// database and one ZooKeeper ensemble. The README shows how to run two of them, and which parts to copy.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/zkrecipes/zkrecipes/contrib/promzkrecipes"
	"github.com/zkrecipes/zkrecipes/recipes"
)

const (
	lockWait      = 2 * time.Second  // a purchase that waits longer is answered with 503
	workLimit     = 10 * time.Second // for the wait and the purchase together
	shutdownLimit = 15 * time.Second // longer than workLimit, so that purchases can finish
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "httpshop:", err)
		stop()
		os.Exit(1) //nolint:gocritic // stop was called
	}
}

// run serves until ctx ends. It then answers the current requests, releases the locks and returns.
func run(ctx context.Context, args []string, stdout io.Writer) (err error) {
	flags := flag.NewFlagSet("httpshop", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:8080", "`address` to serve on")
	servers := flags.String("zk", "127.0.0.1:2181", "ZooKeeper `servers`, separated by commas")
	file := flags.String("db", "shop.db", "SQLite `file`, which all processes share")
	if err := flags.Parse(args); err != nil {
		return err
	}

	db, err := openStore(ctx, *file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	metrics := promzkrecipes.New()
	client, err := recipes.Connect(ctx, strings.Split(*servers, ","), // one client per process
		recipes.WithSessionTimeout(10*time.Second), // a crashed process blocks its goods for 10 s
		recipes.WithTrace(metrics.Trace()))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	defer metrics.Observe(client)()

	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics)
	shop := &shop{store: db, client: client, lockWait: lockWait, authorize: authorize, log: slog.Default()}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /goods/{id}/purchases", shop.purchase)
	mux.HandleFunc("GET /readyz", shop.ready)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", *listen)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(stdout, "serving on http://%s\n", listener.Addr())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }() // ends with Shutdown
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownLimit)
	defer cancel()
	err = server.Shutdown(ending)                    // first the requests, which may hold locks
	return errors.Join(err, client.Shutdown(ending)) // then the locks and the session
}

// authorize simulates a payment provider. An authorization lapses unless it is captured, and a repeated call with the
// same key returns the same authorization.
func authorize(ctx context.Context, key string) error {
	select {
	case <-time.After(20 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("authorize payment for %s: %w", key, context.Cause(ctx))
	}
}
