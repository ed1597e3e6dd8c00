package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/zkrecipes/zkrecipes/contrib/promzkrecipes"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// hangPath is the election of the process below.
const hangPath = "/jobs/report"

// stockID is the process that contends for a lock all night, so that the board has locks to show.
const stockID = "stock-1"

// hang is the program of a leader whose work ignores its context: a call without a deadline. SIGTERM asks it to step
// down. night runs itself as "night hang ID SERVERS".
func hang(ctx context.Context, id, servers string) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewJSONHandler(os.Stdout, nil)).With("worker", id)
	collector := promzkrecipes.New()
	prometheus.MustRegister(collector)
	client, err := recipes.Connect(ctx, strings.Split(servers, ","), recipes.WithID(id), recipes.WithLogger(log),
		recipes.WithSessionTimeout(sessionTimeout), recipes.WithTrace(collector.Trace()))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	defer collector.Observe(client)()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.Handler())
	go func() { _ = http.Serve(listener, mux) }() //nolint:gosec // ends with the process
	log.Info("serving", "url", "http://"+listener.Addr().String())
	if id == stockID {
		return sell(ctx, client)
	}
	job, err := selector.New(client, hangPath, func(ctx context.Context, _ *recipes.Lease) error {
		if id == "report-1" {
			select {} // no call of this process ends it
		}
		<-ctx.Done()
		return ctx.Err()
	}, selector.WithName("report"), selector.WithAutoRequeue())
	if err != nil {
		return err
	}
	return job.Run(ctx)
}

// sell makes two goroutines take turns with a lock, and a third try it without waiting.
func sell(ctx context.Context, client *recipes.Client) error {
	goods, err := mutex.New(client, "/locks/goods", mutex.WithName("goods"))
	if err != nil {
		return err
	}
	var sellers sync.WaitGroup
	for range 2 {
		sellers.Go(func() { // ends with ctx; joined below
			for ctx.Err() == nil {
				_ = goods.Do(ctx, func(ctx context.Context, _ *recipes.Lease) error {
					pause(ctx, time.Second)
					return nil
				})
				pause(ctx, 100*time.Millisecond)
			}
		})
	}
	for ctx.Err() == nil {
		if lease, err := goods.TryAcquire(ctx); err == nil {
			_ = lease.Release()
		}
		pause(ctx, time.Second)
	}
	sellers.Wait()
	return ctx.Err()
}
