// Command stock sells a hundred items to fifteen hundred buyers, who all arrive at once, through several service
// processes that share one SQL table. Each purchase reads the stock, pauses, and writes back the stock minus one.
// Without a lock this oversells. With the InterProcessMutex of this module it does not.
//
// Usage:
//
//	stock [flags]         run the whole scenario and report
//	stock serve [flags]   run one service process
//
// The exit status is 0 if every buyer was answered and nothing was oversold or
// lost, 1 if not, and 2 if the flags are wrong.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const (
	exitSound   = 0
	exitDamaged = 1
	exitUsage   = 2
)

const help = `stock shows what a lock across processes is for. Many buyers ask several processes of a shop for a few items, all
at once. Each purchase reads the stock, pauses, and writes back the stock minus one. At the end stock compares the
sales with the items: the exit status is 0 if nothing was oversold or lost, and 1 otherwise.

  stock [flags]         run the scenario: without flags on an in-process ZooKeeper and a temporary SQLite file
  stock -lock=false     the same without a lock: see the damage
  stock serve [flags]   run one process of the shop; see stock serve -h

Flags:
`

const noServers = "serve needs ZooKeeper: name the servers with -zk host:port or ZKRECIPES_SERVERS, " +
	"or see what happens with -lock=false"

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// options are the flags of both commands. What describes the service is handed
// on to the processes of a demo unchanged.
type options struct {
	// the service
	zk             string
	db             string
	lock           bool
	cohort         bool
	think          time.Duration
	patience       time.Duration
	sessionTimeout time.Duration
	logLevel       slog.Level

	// stock serve
	listen   string
	untilEOF bool

	// stock
	buyers    int
	items     int
	basket    int
	processes int
	atOnce    int
}

// run is main without the process around it. It returns the exit status after everything that it started is over.
// stderr must be safe for concurrent writes, because the services of a demo write there, too.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks for an orderly end. From then on the default action
	// is back, so a second one ends a stop that hangs.
	context.AfterFunc(ctx, stop)

	serving := len(args) > 0 && args[0] == "serve"
	if serving {
		args = args[1:]
	}
	opts, err := parse(serving, args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return exitSound
	case err != nil:
		_, _ = fmt.Fprintln(stderr, "stock:", err)
		return exitUsage
	}

	if serving {
		err = serve(ctx, opts, stdin, stdout, stderr)
	} else {
		var r report
		r, err = demo(ctx, opts, stdout, stderr)
		if err == nil {
			err = r.write(stdout)
		}
		if err == nil && !r.sound() {
			return exitDamaged
		}
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "stock:", err)
		return exitDamaged
	}
	return exitSound
}

// parse reads the flags of the demo or of serve and checks them.
func parse(serving bool, args []string, stderr io.Writer) (options, error) {
	name := "stock"
	if serving {
		name = "stock serve"
	}
	var o options
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		_, _ = fmt.Fprint(stderr, help)
		fs.PrintDefaults()
	}
	fs.StringVar(&o.db, "db", os.Getenv("STOCK_DB"), "database: an SQLite `file`, or a DSN of go-sql-driver,\nsuch as user:password@tcp(host:3306)/name (default $STOCK_DB, else a temporary SQLite file)")
	fs.BoolVar(&o.lock, "lock", true, "guard each purchase with the lock; -lock=false shows the damage without it")
	fs.BoolVar(&o.cohort, "cohort", false, "let the buyers of one process pass the lock on among themselves: mutex.WithCohort")
	fs.DurationVar(&o.think, "think", 2*time.Millisecond, "pause up to this long between reading and writing the stock")
	fs.DurationVar(&o.patience, "patience", time.Minute, "answer 503 if a purchase takes longer, including its wait for the lock")
	fs.DurationVar(&o.sessionTimeout, "session-timeout", 10*time.Second, "ZooKeeper session timeout: a crashed process blocks the others for this long")
	servers := "ZooKeeper servers, `host:port,…` (default $ZKRECIPES_SERVERS"
	if serving {
		fs.StringVar(&o.zk, "zk", os.Getenv("ZKRECIPES_SERVERS"), servers+")")
		fs.StringVar(&o.listen, "listen", "127.0.0.1:8080", "`address` to serve on; port 0 takes a free one")
		fs.BoolVar(&o.untilEOF, "until-eof", false, "stop when standard input ends, so that no process outlives its parent")
		fs.TextVar(&o.logLevel, "log", slog.LevelInfo, "log records of this `level` and above")
	} else {
		fs.StringVar(&o.zk, "zk", os.Getenv("ZKRECIPES_SERVERS"), servers+", else an in-process ZooKeeper)")
		fs.IntVar(&o.buyers, "buyers", 1500, "`number` of buyers")
		fs.IntVar(&o.items, "items", 100, "`number` of items in stock")
		fs.IntVar(&o.basket, "basket", 1, "`number` of goods, of which each buyer wants one item together: multilock.NewMutexes")
		fs.IntVar(&o.processes, "processes", 3, "`number` of processes of the shop")
		fs.IntVar(&o.atOnce, "at-once", 0, "`number` of buyers who ask at the same time (default all)")
		fs.TextVar(&o.logLevel, "log", slog.LevelWarn, "log records of this `level` and above")
	}
	if err := fs.Parse(args); err != nil {
		return o, err
	}

	switch {
	case fs.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case serving && o.lock && o.zk == "":
		return o, errors.New(noServers)
	case serving && o.db == "":
		return o, errors.New("serve needs -db: a temporary database is of no use to a single service")
	case !serving && (o.buyers < 1 || o.items < 0 || o.processes < 1 || o.atOnce < 0):
		return o, errors.New("-buyers and -processes must be 1 or more, -items and -at-once 0 or more")
	case !serving && (o.basket < 1 || o.basket > mostGoods || o.basket > 1 && o.cohort):
		return o, fmt.Errorf("-basket must be 1 to %d, and 1 with -cohort", mostGoods)
	case o.think < 0 || o.patience <= 0 || o.sessionTimeout <= 0:
		return o, errors.New("-think must not be negative, -patience and -session-timeout must be positive")
	}
	return o, nil
}

// servers splits the -zk flag.
func (o options) servers() []string {
	return strings.Split(o.zk, ",")
}
