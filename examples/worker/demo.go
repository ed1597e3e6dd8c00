package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// demo prepares a database, a ZooKeeper if none is named, and the status page, and starts the tour of failing
// leaders. When it returns, all workers are over, and an embedded server and a temporary database are removed.
func demo(ctx context.Context, o options, stdout, stderr io.Writer) (err error) {
	if o.db == "" {
		dir, err := os.MkdirTemp("", "worker-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		o.db = filepath.Join(dir, "worker.db")
	}
	db, err := openStore(ctx, o.db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := db.reset(ctx); err != nil {
		return err
	}

	zooKeeper := "ZooKeeper"
	if o.zk == "" {
		server, zerr := zktest.Start()
		if zerr != nil {
			return zerr
		}
		// The workers end first: they give their sessions back.
		defer func() { err = errors.Join(err, server.Close()) }()
		o.zk, zooKeeper = server.Addr(), "an embedded ZooKeeper"
	}
	client, err := recipes.Connect(ctx, o.servers(), recipes.WithSessionTimeout(o.sessionTimeout))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	onlooker, err := latch.New(client, electionPath) // not started: it takes no part
	if err != nil {
		return err
	}
	site, err := startSite(ctx, o.listen, onlookerPage(db, onlooker, o.every).handler())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, site.stop(ctx)) }()

	t := &tour{o: o, out: stdout, stderr: stderr, began: time.Now(), events: newJournal(), workers: map[string]*process{}}
	defer func() { err = errors.Join(err, t.close()) }()
	t.say("a run every %v, sessions of %v, %s, %s", o.every, client.SessionTimeout(), db.kind, zooKeeper)
	t.say("watch it at %s/?refresh=1", site.url)
	if err := t.play(ctx); err != nil {
		return err
	}
	r := report{handovers: t.handovers, sessionTimeout: client.SessionTimeout(), every: o.every, terms: terms(t.events.all(), t.handovers)}
	r.stale = staleWrites(t.events.all())
	if r.runs, err = db.lastRuns(ctx, allRuns); err != nil {
		return err
	}
	if err := r.write(stdout); err != nil {
		return err
	}
	if o.stay {
		t.say("going on until interrupted: %s/?refresh=1", site.url)
		t.watch(ctx)
	}
	return r.fault()
}

const allRuns = 1 << 20
