package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// serveGreeting precedes the URL on the one line that serve prints once it takes
// requests: startProcess waits for it.
const serveGreeting = "stock: serving on "

// serve runs one service process until ctx ends, or stdin does with -until-eof.
// It then takes no more requests, answers those it has, and gives its locks back.
func serve(ctx context.Context, o options, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: o.logLevel}))

	db, err := openStore(ctx, o.db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	hold := guard(unlocked)
	if o.lock {
		client, cerr := recipes.Connect(ctx, o.servers(),
			recipes.WithSessionTimeout(o.sessionTimeout), recipes.WithLogger(log))
		if cerr != nil {
			return cerr
		}
		defer func() { err = errors.Join(err, client.Close()) }()
		hold = locked(client)
		if o.cohort {
			hold = lockedInCohort(client)
		}
	}

	svc := &service{store: db, guard: hold, think: thinkUpTo(o.think), patience: o.patience, log: log}
	server := &http.Server{Handler: svc.handler(), ReadHeaderTimeout: 10 * time.Second}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return err
	}

	// Ends with the shutdown below, which is why the channel is received from
	// on every way out.
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if o.untilEOF {
		// Ends with stdin, or with the process: a read can't be called off.
		go func() {
			_, _ = io.Copy(io.Discard, stdin)
			cancel()
		}()
	}
	_, _ = fmt.Fprintf(stdout, "%shttp://%s\n", serveGreeting, listener.Addr())
	log.InfoContext(ctx, "serving", "address", listener.Addr().String(), "lock", o.lock)

	select {
	case err = <-served: // never nil
		return err
	case <-ctx.Done():
	}
	log.InfoContext(ctx, "stopping")
	grace, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer stop()
	if err = server.Shutdown(grace); errors.Is(err, context.DeadlineExceeded) {
		// Whoever still waits for a lock is cut off, and asks another service.
		err = server.Close()
	}
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}

// thinkUpTo returns a pause of random length, shorter than limit, that ends early
// with its context.
func thinkUpTo(limit time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		if limit <= 0 {
			return context.Cause(ctx)
		}
		pause := time.NewTimer(rand.N(limit))
		defer pause.Stop()
		select {
		case <-pause.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
