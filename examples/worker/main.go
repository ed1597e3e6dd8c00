// Command worker runs a job every minute, in one process at a time. Several processes stand by. When the leader
// stops, dies or hangs, the next one takes over and runs the job when it is due. The late writes of a hung leader are
// refused.
//
// The example elects its leader with a LeaderLatch, not a LeaderSelector, because other parts of the process use the
// election, too: the status page shows problems, and the readiness check asks whether this process leads, or whether
// that is undecided. A process that only runs the job is shorter with a LeaderSelector.
//
// Usage:
//
//	worker [flags]         show it: three workers, and what happens to their leaders
//	worker serve [flags]   run one worker
//
// Its exit status is 0 for success, 1 for a failure, and 2 for wrong arguments.
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

const (
	noServers  = "serve needs ZooKeeper: name the servers with -zk host:port or ZKRECIPES_SERVERS"
	noDatabase = "serve needs -db: workers share one database"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// options are the flags of both commands. What describes a worker is handed on to the
// processes of a demo unchanged.
type options struct {
	// a worker
	zk             string
	db             string
	every          time.Duration
	work           time.Duration
	sessionTimeout time.Duration

	// worker serve
	id       string
	listen   string
	untilEOF bool
	logLevel slog.Level

	// worker
	stay bool
}

// run is main without the process around it. It returns the exit status after everything that it started is over.
// stderr must be safe for concurrent writes, because the workers of a demo write there, too.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	// The first signal asks for an orderly end. From then on the default action is
	// back, so a second one ends a stop that hangs.
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
		_, _ = fmt.Fprintln(stderr, "worker:", err)
		return exitUsage
	}

	if serving {
		err = serve(ctx, opts, stdin, stdout)
	} else {
		err = demo(ctx, opts, stdout, stderr)
	}
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "worker:", err)
		return exitDamaged
	}
	return exitSound
}

// parse reads the flags of the demo or of serve and checks them.
func parse(serving bool, args []string, stderr io.Writer) (options, error) {
	name, every, work, session := "worker", time.Second, 300*time.Millisecond, 3*time.Second
	if serving {
		name, every, work, session = "worker serve", time.Minute, time.Second, 10*time.Second
	}
	var o options
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.db, "db", os.Getenv("WORKER_DB"), "database: an SQLite `file`, or a DSN of go-sql-driver,\nsuch as user:password@tcp(host:3306)/name (default $WORKER_DB, else a temporary SQLite file)")
	fs.DurationVar(&o.every, "every", every, "run the job every so often")
	fs.DurationVar(&o.work, "work", work, "how long the job takes: it only waits")
	fs.DurationVar(&o.sessionTimeout, "session-timeout", session, "ZooKeeper session timeout: a leader that crashes or hangs is replaced after this long")
	servers := "ZooKeeper servers, `host:port,…` (default $ZKRECIPES_SERVERS"
	if serving {
		fs.StringVar(&o.zk, "zk", os.Getenv("ZKRECIPES_SERVERS"), servers+")")
		fs.StringVar(&o.id, "id", defaultID(), "what the others call this worker")
		fs.StringVar(&o.listen, "listen", "127.0.0.1:8080", "`address` of the status page; port 0 takes a free one")
		fs.BoolVar(&o.untilEOF, "until-eof", false, "stop when standard input ends, so that no worker outlives its parent")
		fs.TextVar(&o.logLevel, "log", slog.LevelInfo, "log from this `level` on")
	} else {
		fs.StringVar(&o.zk, "zk", os.Getenv("ZKRECIPES_SERVERS"), servers+", else an embedded one)")
		fs.StringVar(&o.listen, "listen", "127.0.0.1:0", "`address` of the status page; port 0 takes a free one")
		fs.BoolVar(&o.stay, "stay", false, "go on after the demonstration, until interrupted")
	}
	if err := fs.Parse(args); err != nil {
		return o, err
	}

	switch {
	case fs.NArg() > 0:
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case serving && o.zk == "":
		return o, errors.New(noServers)
	case serving && o.db == "":
		return o, errors.New(noDatabase)
	case o.every <= 0 || o.work < 0 || o.sessionTimeout <= 0:
		return o, errors.New("-every and -session-timeout must be positive, -work must not be negative")
	case serving && (o.id == "" || len(o.id) > maxID):
		return o, fmt.Errorf("-id must have 1 to %d bytes", maxID)
	case !serving && o.work > o.every/2:
		return o, errors.New("-work must not be more than half of -every, or there is no telling the runs apart")
	}
	return o, nil
}

// maxID is what fits into the table of runs.
const maxID = 64

func defaultID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "worker"
	}
	return fmt.Sprintf("%.50s-%d", host, os.Getpid())
}

// servers splits the -zk flag.
func (o options) servers() []string {
	return strings.Split(o.zk, ",")
}
