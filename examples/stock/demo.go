package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// demoGoods returns n goods on sale.
func demoGoods(n int) (goods []string) {
	for i := range n {
		goods = append(goods, fmt.Sprintf("G-%d", 1001+i))
	}
	return goods
}

// demo prints the scenario, puts the goods on sale, starts the service processes, lets the buyers in and counts the
// sales. If the options name no ZooKeeper, demo starts one in this process. When demo returns, all processes are
// over, and an embedded server and a temporary database are removed.
func demo(ctx context.Context, o options, stdout, stderr io.Writer) (r report, err error) {
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
	goods := demoGoods(o.basket)
	for _, goodsNo := range goods {
		if err := db.reset(ctx, goodsNo, o.items); err != nil {
			return report{}, err
		}
	}

	zooKeeper := "ZooKeeper"
	if o.lock && o.zk == "" {
		server, zerr := zktest.Start()
		if zerr != nil {
			return report{}, zerr
		}
		// The services end first: they give their sessions back.
		defer func() { err = errors.Join(err, server.Close()) }()
		o.zk, zooKeeper = server.Addr(), "an in-process ZooKeeper"
	}

	if _, err := fmt.Fprintln(stdout, scenario(o, db.kind, zooKeeper)); err != nil {
		return report{}, err
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

	bar := newProgress(o.buyers, stdout, stderr)
	l := &load{urls: urls, goods: goods, buyers: o.buyers, atOnce: o.atOnce, answered: bar.add}
	t := l.run(ctx)
	bar.finish()
	if ctx.Err() != nil {
		return report{}, errors.New("interrupted")
	}
	if t.unanswered > 0 {
		_, _ = fmt.Fprintf(stderr, "stock: %d buyers were not answered, the first because of: %v\n", t.unanswered, t.firstErr)
	}

	r = report{
		tally: t, lock: o.lock, items: o.items,
	}
	return r, r.count(ctx, db, goods)
}

// progress shows the number of answered buyers, with a bar if stderr is a terminal, otherwise with three lines.
type progress struct {
	bar *progressbar.ProgressBar // nil without a terminal

	buyers int
	stdout io.Writer
	count  atomic.Int64
}

func newProgress(buyers int, stdout, stderr io.Writer) *progress {
	p := &progress{buyers: buyers, stdout: stdout}
	if f, ok := stderr.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.bar = progressbar.NewOptions(buyers,
			progressbar.OptionSetWriter(stderr),
			progressbar.OptionSetDescription("buyers"),
			progressbar.OptionShowCount(),
			progressbar.OptionClearOnFinish(),
		)
	}
	return p
}

// add counts one buyer. It is safe for concurrent use.
func (p *progress) add() {
	if p.bar != nil {
		_ = p.bar.Add(1)
		return
	}
	n := int(p.count.Add(1))
	if step := max(1, p.buyers/3); n%step == 0 && n < p.buyers {
		_, _ = fmt.Fprintf(p.stdout, "  %d of %d buyers answered\n", n, p.buyers)
	}
}

func (p *progress) finish() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
