package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// serve runs one worker until ctx ends, or stdin does with -until-eof.
//
// The defers stop the worker from the bottom up. First the worker leaves the election, so that the next one leads
// while this one still answers its last requests. Then the session ends, and finally the database is closed, because
// runs are recorded there until the term is over.
func serve(ctx context.Context, o options, stdin io.Reader, stdout io.Writer) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	log := slog.New(slog.NewJSONHandler(stdout, &slog.HandlerOptions{Level: o.logLevel})).With("worker", o.id)
	defer log.InfoContext(ctx, saysStopped)

	db, err := openStore(ctx, o.db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	metrics, err := newTelemetry(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, metrics.close(ctx)) }()

	client, err := recipes.Connect(ctx, o.servers(), recipes.WithSessionTimeout(o.sessionTimeout),
		recipes.WithID(o.id), recipes.WithLogger(log), recipes.WithTrace(metrics.Trace())) //nolint:contextcheck // the hooks get the contexts of those who acquire
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if _, err := metrics.Observe(client); err != nil { // until the provider is shut down
		return err
	}

	w := &worker{id: o.id, store: db, job: waiting(o.work), every: o.every, log: log, telemetry: metrics}
	if err := w.enter(client); err != nil { //nolint:contextcheck // a latch runs until it is closed
		return err
	}
	site, err := startSite(ctx, o.listen, w.page().handler())
	if err != nil {
		return errors.Join(err, w.leave())
	}
	defer func() { err = errors.Join(err, site.stop(ctx)) }()
	defer func() { err = errors.Join(err, w.leave()) }()

	if o.untilEOF {
		// Ends with stdin or with the process, because a read can't be cancelled.
		go func() {
			_, _ = io.Copy(io.Discard, stdin)
			cancel()
		}()
	}
	return w.await(ctx, site)
}

// await reports the first decision of the election, and returns when the worker has to end, with nil when ctx ends.
func (w *worker) await(ctx context.Context, site *site) error {
	decided := w.latch.Decided()
	for {
		select {
		case <-decided:
			w.log.InfoContext(ctx, saysServing, "url", site.url)
			decided = nil // once
		case err := <-site.failed:
			return err
		case err := <-w.gaveUp:
			return err
		case <-ctx.Done():
			return nil // it was asked to
		}
	}
}

// site is a running HTTP server.
type site struct {
	url    string
	server *http.Server
	failed chan error // an error that ended it before stop
}

func startSite(ctx context.Context, address string, handler http.Handler) (*site, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	s := &site{
		url:    "http://" + listener.Addr().String(),
		server: &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second},
		failed: make(chan error, 1),
	}
	go func() { s.failed <- s.server.Serve(listener) }() // ends with the server; stop sees to that
	return s, nil
}

// stop takes no more requests, and waits for those under way, but not for long.
func (s *site) stop(ctx context.Context) error {
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := s.server.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.server.Close()
	}
	return err
}
