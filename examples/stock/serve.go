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

// serveGreeting precedes the URL on the single line that serve prints once it accepts requests. startProcess waits
// for this line.
const serveGreeting = "stock: serving on "

// serve runs one service process until ctx ends, or with -until-eof until stdin ends. It then accepts no more
// requests, answers the current ones, and releases its locks.
func serve(ctx context.Context, o options, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: o.logLevel}))

	db, err := openStore(ctx, o.db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	hold, holdAll := guard(unlocked), basketGuard(unlockedTogether)
	if o.lock {
		client, cerr := recipes.Connect(ctx, o.servers(),
			recipes.WithSessionTimeout(o.sessionTimeout), recipes.WithLogger(log))
		if cerr != nil {
			return cerr
		}
		defer func() { err = errors.Join(err, client.Close()) }()
		hold, holdAll = locked(client), lockedTogether(client)
		if o.cohort {
			hold = lockedInCohort(client)
		}
	}

	svc := &service{store: db, guard: hold, basketGuard: holdAll, think: thinkUpTo(o.think), patience: o.patience, log: log}
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
		// Ends with stdin or with the process, because a read can't be cancelled.
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
		// Requests that still wait for a lock are cut off; their buyers ask another service.
		err = server.Close()
	}
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}

// thinkUpTo returns a random pause shorter than limit, which ends early with its context.
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
