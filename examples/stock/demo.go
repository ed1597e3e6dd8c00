package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// demoGoods is what the buyers come for.
const demoGoods = "G-1001"

// demo puts the goods on sale, starts the service processes, sends the buyers in
// and counts what came of it. Where no ZooKeeper is named it brings its own, in this
// process. When it returns, the processes have ended, and an embedded server and a
// temporary database are gone.
func demo(ctx context.Context, o options, stderr io.Writer) (r report, err error) {
	if o.db == "" {
		dir, err := os.MkdirTemp("", "stock-")
		if err != nil {
			return report{}, err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		o.db = filepath.Join(dir, "stock.db")
	}
	db, err := openStore(ctx, o.db)
	if err != nil {
		return report{}, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := db.reset(ctx, demoGoods, o.items); err != nil {
		return report{}, err
	}

	zooKeeper := "ZooKeeper"
	if o.lock && o.zk == "" {
		server, zerr := zktest.Start()
		if zerr != nil {
			return report{}, zerr
		}
		// The services end first: they give their sessions back.
		defer func() { err = errors.Join(err, server.Close()) }()
		o.zk, zooKeeper = server.Addr(), "an embedded ZooKeeper"
	}

	var urls []string
	for range o.processes {
		p, serr := startProcess(ctx, o, stderr)
		if serr != nil {
			return report{}, serr
		}
		defer func() { err = errors.Join(err, p.stop()) }()
		urls = append(urls, p.url)
	}

	bar := newProgress(o.buyers, stderr)
	l := &load{urls: urls, goodsNo: demoGoods, buyers: o.buyers, atOnce: o.atOnce, answered: bar.add}
	t := l.run(ctx)
	bar.finish()
	if ctx.Err() != nil {
		return report{}, errors.New("interrupted")
	}
	if t.unanswered > 0 {
		_, _ = fmt.Fprintf(stderr, "stock: %d buyers were not answered, the first because of: %v\n", t.unanswered, t.firstErr)
	}

	r = report{
		tally: t, lock: o.lock, cohort: o.cohort, zooKeeper: zooKeeper, database: db.kind, items: o.items, processes: o.processes,
	}
	if r.left, err = db.read(ctx, demoGoods); err != nil {
		return report{}, err
	}
	if r.recorded, err = db.sales(ctx, demoGoods); err != nil {
		return report{}, err
	}
	return r, nil
}

// progress shows how many buyers have been answered, on a terminal only.
type progress struct{ bar *progressbar.ProgressBar }

func newProgress(buyers int, w io.Writer) progress {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return progress{progressbar.DefaultSilent(int64(buyers))}
	}
	return progress{progressbar.NewOptions(buyers,
		progressbar.OptionSetWriter(w),
		progressbar.OptionSetDescription("buyers"),
		progressbar.OptionShowCount(),
		progressbar.OptionClearOnFinish(),
	)}
}

// add counts one buyer. It may be called by several goroutines at once.
func (p progress) add() { _ = p.bar.Add(1) }

func (p progress) finish() { _ = p.bar.Finish() }
