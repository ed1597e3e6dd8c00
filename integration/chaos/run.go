package chaos

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/integration/slowdisk"
	"github.com/zkrecipes/zkrecipes/internal/mariadb"
)

// SessionTimeout is the session timeout of all clients, also used by the judge.
const SessionTimeout = 4 * time.Second

// Plan configures a run.
type Plan struct {
	Seed    uint64
	Length  time.Duration // of the faults
	Clients int           // processes
	Peer    Peer          // what to try, if not the whole library
}

// The user as whom clients log in.
const (
	loginUser, loginPassword = "ann", "secret"

	loginConfig = "Server { org.apache.zookeeper.server.auth.DigestLoginModule required user_" + loginUser + "=\"" + loginPassword + "\"; };\n"
)

// VoidBelow is how many leases a second there have to be before the first fault: without
// contention there is nothing to be seen.
const VoidBelow = 20

// How long a run looks on before the first fault, until it is brisk, and for how long at
// most after the last one.
const (
	calmBefore = 5 * time.Second
	briskIn    = time.Minute
	healedIn   = 30 * time.Second
)

// Outcome is what a run gave.
type Outcome struct {
	History *History
	Rate    float64        // leases a second before the first fault
	Healed  int64          // the end of the last fault
	Settled time.Duration  // from the last fault to the last contender's last lease; 0: not all got one
	NotAll  error          // why Settled is 0
	Stuck   []*Stuck       // the state after each wait that took too long
	NoNetem error          // why no server was slowed down, if so
	NoDisks error          // why no disk was, if so
	Logs    []ServerLogs   // of each server
	Former  [][]ServerLogs // the same, before each restore
	Left    []Remnant      // znodes and watches that remain when all contenders are done
}

// Run plays the plan on three servers. Its error is a failure of the test machinery.
func Run(ctx context.Context, plan Plan) (o *Outcome, err error) {
	cfg := withBounds(ensemble.Config{
		Nodes: 3, Private: true,
		JVMFlags: []string{
			"-Dzookeeper.preAllocSize=1024", // KiB
			"-Djava.security.auth.login.config=/conf/jaas.conf", "-Dzookeeper.fips-mode=false",
		},
		Files:      map[string][]byte{"/conf/jaas.conf": []byte(loginConfig)},
		Properties: map[string]string{"maxClientCnxns": "0", "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"},
	}, ordinaryBounds())
	noSlowDisks := slowdisk.Install(ctx, &cfg)
	if noSlowDisks != nil {
		cfg.JVMFlags = append(cfg.JVMFlags, "-Dzookeeper.forceSync=no") // the default with slowdisk
	}
	servers, err := ensemble.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, servers.Close()) }()
	base, err := mariadb.Start(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, base.Stop()) }()
	db, err := openRows(base.DSN())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := errors.Join(makeRows(ctx, db, paths...), makeTicks(ctx, db)); err != nil {
		return nil, err
	}
	admin, _, err := zk.Connect(servers.Servers(), 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	if _, err := servers.Exec(ctx, 0, "iptables", "-L", "-n"); err != nil {
		return nil, fmt.Errorf("chaos: servers can't be cut off in this image, build integration/image: %w", err)
	}
	if _, err := admin.Create(registerPath, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}

	r := &run{Plan: plan, servers: servers, admin: admin, db: db, noSlowDisks: noSlowDisks}
	defer func() { r.admin.Close() }() // which may be another one by then
	defer r.end()
	if err := r.start(base.DSN()); err != nil {
		return nil, err
	}
	return r.play(ctx)
}

// silent discards the output of zk.Conn, which contains session ids.
type silent struct{}

func (silent) Printf(string, ...any) {}

type run struct {
	Plan
	servers *ensemble.Ensemble
	admin   *zk.Conn
	db      *sql.DB
	clients []*client
	proxies []*faultproxy.Proxy
	pulse   *pulse
	stalls  []Fault // of earlier pulses

	noSlowDisks error // why the servers' disks can't be slowed down, if so
}

func (r *run) start(dsn string) error {
	for i := range r.Clients {
		var lines []*faultproxy.Proxy
		for _, server := range r.servers.Servers() {
			line, err := faultproxy.Start(server)
			if err != nil {
				return err
			}
			lines, r.proxies = append(lines, line), append(r.proxies, line)
		}
		start := startClient
		if r.Peer == Curator {
			start = startCurator
		}
		c, err := start(Setup{Proc: i + 1, Timeout: SessionTimeout, DSN: dsn, Seed: r.Seed, Peer: r.Peer}, lines)
		if err != nil {
			return err
		}
		r.clients = append(r.clients, c)
	}
	return nil
}

// end joins all processes and lines.
func (r *run) end() {
	for _, c := range r.clients {
		c.kill()
		if c.named != nil {
			c.named.close()
		}
	}
	for _, p := range r.proxies {
		p.Close()
	}
}

func (r *run) leases() (n int64) {
	for _, c := range r.clients {
		n += c.leases.Load()
	}
	return n
}

func (r *run) play(ctx context.Context) (*Outcome, error) {
	o := &Outcome{History: &History{Offset: clockOffset()}}
	var err error
	if r.pulse, err = startPulse(ctx, r.admin, r.servers.Servers()); err != nil { // servers are slow while they warm up
		return nil, err
	}
	if err := r.gather(ctx); err != nil {
		_ = r.pulse.Stop()
		return nil, err
	}
	o.Rate = r.calm(ctx)
	o.NoNetem, o.NoDisks = hasNetem(ctx, r.servers), r.noSlowDisks
	n := &Nemesis{
		servers: r.servers, clients: r.clients, admin: r.admin, timeout: SessionTimeout,
		netem: o.NoNetem == nil, disks: o.NoDisks == nil, lacking: r.Peer.lacking(),
	}
	var errs []error
	if err := r.harm(ctx, n, o.History); err != nil {
		errs = append(errs, fmt.Errorf("chaos: nemesis: %w", err)) // its faults are examined even so
	}
	r.settle(ctx, n, o)
	settledAt := Now()
	r.look(ctx, o.History, false)
	if o.NotAll == nil {
		o.Left = r.left(ctx)
	}
	o.History.Starved = append(r.stalls, r.pulse.Stop()...)
	for _, c := range r.clients {
		c.leave()
	}
	r.end()
	for _, c := range r.clients {
		o.History.Events = append(o.History.Events, c.events...)
		if c.err != nil {
			errs = append(errs, fmt.Errorf("chaos: client %d: %w", c.proc, c.err))
		}
	}
	slices.SortStableFunc(o.History.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	o.History.Faults = n.faults
	o.History.collectStarved()
	if moved := time.Duration(clockOffset() - o.History.Offset).Abs(); moved > time.Duration(clockError) {
		errs = append(errs, fmt.Errorf("chaos: the wall clock was set by %v: the logs can't be compared with the rest", moved))
	}
	errs = append(errs, r.readLogs(ctx, o))
	eras := o.History.eras()
	o.Left = eras[len(eras)-1].withoutGhosts(o.Left, settledAt)
	for _, s := range o.Stuck {
		s.Text = strings.Join(append(o.History.listQueueHeads(s.at), listUnfinished(o.History.Events, s.at, r.processes())...), "\n")
	}
	return o, errors.Join(errs...)
}

// readLogs reads the servers' logs, from before each restore and since.
func (r *run) readLogs(ctx context.Context, o *Outcome) (err error) {
	h := o.History
	for i := range h.Former {
		logs, err := fetchLogs(ctx, r.servers, fmt.Sprintf("%s/%d", ensemble.FormerDir, i+1))
		if err != nil {
			return err
		}
		txns, err := committed(logs)
		if err != nil {
			return err
		}
		o.Former = append(o.Former, logs)
		h.Former[i].Lives, h.Former[i].Refusals = lives(txns), refusals(txns)
	}
	if o.Logs, err = fetchLogs(ctx, r.servers, "/data/version-2"); err != nil {
		return err
	}
	txns, err := committed(o.Logs)
	h.Lives, h.Refusals = lives(txns), refusals(txns)
	return err
}

// processes names the processes that run, or ran last.
func (r *run) processes() (names []string) {
	for _, c := range r.clients {
		names = append(names, c.name)
	}
	return names
}

// gather waits until every client has had a lease.
func (r *run) gather(ctx context.Context) error {
	late := time.After(time.Minute)
	for _, c := range r.clients {
		for c.leases.Load() == 0 {
			select {
			case <-time.After(10 * time.Millisecond):
				continue
			case <-c.gone:
			case <-late:
			case <-ctx.Done():
			}
			return fmt.Errorf("chaos: client %d does not start", c.proc)
		}
	}
	return nil
}

// calm looks on until work is brisk, which it is not while the servers warm up, and
// returns how many leases there are a second.
func (r *run) calm(ctx context.Context) (rate float64) {
	brisk := float64(VoidBelow)
	if r.Peer != "" {
		brisk = 1 // a single lock with long holds can't have more
	}
	for begun := time.Now(); rate < brisk && time.Since(begun) < briskIn && ctx.Err() == nil; {
		before := r.leases()
		pause(ctx, calmBefore)
		rate = float64(r.leases()-before) / calmBefore.Seconds()
	}
	return rate
}
