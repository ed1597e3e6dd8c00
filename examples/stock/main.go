// Command stock sells a hundred items to fifteen hundred buyers who all come at
// once, through several service processes that share one SQL table. Each sale
// reads the stock, thinks, and writes back what it read minus one: without a
// lock that oversells, with the InterProcessMutex of this module it does not.
//
// Usage:
//
//	stock [flags]         run the whole scenario and report
//	stock serve [flags]   run one service process
//
// Its exit status is 0 when every buyer was answered and nothing was oversold
// or lost, 1 when not, and 2 when it was called wrongly.
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
	processes int
	atOnce    int
}

// run is main without the process around it. It returns the exit status, after
// all it started has ended. The services of a demo write to stderr too, so it has
// to bear several writers at once.
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
		r, err = demo(ctx, opts, stderr)
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
	fs.StringVar(&o.db, "db", os.Getenv("STOCK_DB"), "database: an SQLite `file`, or mysql://user:password@host:port/name,\nor a DSN of go-sql-driver (default $STOCK_DB, else a temporary SQLite file)")
	fs.BoolVar(&o.lock, "lock", true, "lock the goods while selling; -lock=false shows why")
	fs.BoolVar(&o.cohort, "cohort", false, "pass each lock on among the buyers of one service process: see mutex.WithCohort")
	fs.DurationVar(&o.think, "think", 2*time.Millisecond, "think for up to this long between reading and writing the stock")
	fs.DurationVar(&o.patience, "patience", time.Minute, "answer 503 when a purchase takes longer than this, waiting for the lock included")
	fs.DurationVar(&o.sessionTimeout, "session-timeout", 10*time.Second, "ZooKeeper session timeout: a crashed service holds up the others for this long")
	servers := "ZooKeeper servers, `host:port,…` (default $ZKRECIPES_SERVERS"
	if serving {
		fs.StringVar(&o.zk, "zk", os.Getenv("ZKRECIPES_SERVERS"), servers+")")
		fs.StringVar(&o.listen, "listen", "127.0.0.1:8080", "`address` to serve on; port 0 takes a free one")
		fs.BoolVar(&o.untilEOF, "until-eof", false, "stop when standard input ends, so that no service outlives its parent")
		fs.TextVar(&o.logLevel, "log", slog.LevelInfo, "log from this `level` on")
	} else {
		fs.StringVar(&o.zk, "zk", os.Getenv("ZKRECIPES_SERVERS"), servers+", else an embedded one)")
		fs.IntVar(&o.buyers, "buyers", 1500, "how many buyers come")
		fs.IntVar(&o.items, "items", 100, "how many items there are")
		fs.IntVar(&o.processes, "processes", 3, "how many service processes to run")
		fs.IntVar(&o.atOnce, "at-once", 0, "how many buyers come at a time, the others queueing outside (default all)")
		fs.TextVar(&o.logLevel, "log", slog.LevelWarn, "log from this `level` on")
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
	case o.think < 0 || o.patience <= 0 || o.sessionTimeout <= 0:
		return o, errors.New("-think must not be negative, -patience and -session-timeout must be positive")
	}
	return o, nil
}

// servers splits the -zk flag.
func (o options) servers() []string {
	return strings.Split(o.zk, ",")
}
