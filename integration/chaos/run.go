package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
	"github.com/zkrecipes/zkrecipes/internal/mariadb"
)

// Plan says how a run goes.
type Plan struct {
	Seed    uint64
	Length  time.Duration // of the faults
	Clients int           // processes
	Timeout time.Duration // of sessions
	Peer    Peer          // whom to try, if not this library
}

// Peer is another lock, on which the same faults are tried.
type Peer string

// The peers. They have no token, and their holders believe in the lock until they release it.
const (
	ZKLock  Peer = "zk.Lock" // go-zookeeper's own
	Curator Peer = "Curator" // Apache's InterProcessMutex
)

// How long a run looks on before the first fault, and for how long at most after the last.
const (
	calmBefore = 5 * time.Second
	healedIn   = 30 * time.Second
)

// Outcome is what a run gave.
type Outcome struct {
	History *History
	Rate    float64       // leases a second before the first fault
	Settled time.Duration // from the last fault to the last contender's last lease; 0: they did not all get one
	Left    []string      // znodes and watches that remain when all clients have gone
}

// Run plays the plan on three servers. Its error is one of the machinery.
func Run(ctx context.Context, plan Plan) (o *Outcome, err error) {
	servers, err := ensemble.Start(ctx, ensemble.Config{
		Nodes: 3, Private: true,
		JVMFlags:   []string{"-Dzookeeper.forceSync=no", "-Dzookeeper.preAllocSize=1024"}, // KiB
		Properties: map[string]string{"maxClientCnxns": "0"},
	})
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
	if err := makeRows(ctx, db, paths...); err != nil {
		return nil, err
	}
	admin, _, err := zk.Connect(servers.Servers(), 10*time.Second, zk.WithLogInfo(false), zk.WithLogger(silent{}))
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	if _, err := admin.Create(registerPath, nil, 0, zk.WorldACL(zk.PermAll)); err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}

	r := &run{Plan: plan, servers: servers, admin: admin}
	defer r.end()
	if err := r.start(base.DSN()); err != nil {
		return nil, err
	}
	return r.play(ctx)
}

// silent discards what zk.Conn says: session ids are in it.
type silent struct{}

func (silent) Printf(string, ...any) {}

type run struct {
	Plan
	servers *ensemble.Ensemble
	admin   *zk.Conn
	clients []*client
	proxies []*faultproxy.Proxy
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
		c, err := start(Setup{Proc: i + 1, Timeout: r.Timeout, DSN: dsn, Seed: r.Seed, ZKLock: r.Peer == ZKLock}, lines)
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
	o := &Outcome{History: &History{Offset: time.Now().UnixNano() - Now()}}
	for r.leases() < int64(r.Clients) { // everybody has come
		if pause(ctx, 50*time.Millisecond); ctx.Err() != nil {
			return nil, fmt.Errorf("chaos: the clients do not start: %w", ctx.Err())
		}
	}
	before := r.leases()
	pause(ctx, calmBefore)
	o.Rate = float64(r.leases()-before) / calmBefore.Seconds()

	n := &Nemesis{servers: r.servers, clients: r.clients, admin: r.admin, timeout: r.Timeout}
	if err := r.harm(ctx, n); err != nil {
		return nil, fmt.Errorf("chaos: nemesis: %w", err)
	}
	healed := Now()
	o.Settled = r.settle(healed)
	if o.Settled > 0 {
		o.Left = r.left(ctx)
	}
	r.end()
	var errs []error
	for _, c := range r.clients {
		o.History.Events = append(o.History.Events, c.events...)
		if o.Settled > 0 && c.err != nil {
			errs = append(errs, fmt.Errorf("chaos: client %d: %w", c.proc, c.err))
		}
	}
	slices.SortStableFunc(o.History.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	o.History.Faults = n.faults
	txns, err := readLogs(ctx, r.servers)
	o.History.Lives = lives(txns)
	return o, errors.Join(append(errs, err)...)
}

// harm lets the nemesis work: one hand at the servers, two at the clients.
func (r *run) harm(ctx context.Context, n *Nemesis) (err error) {
	ctx, cancel := context.WithTimeout(ctx, r.Length)
	defer cancel()
	var hands sync.WaitGroup
	hands.Go(func() {
		defer cancel() // without servers there is nothing to see
		err = n.harmServers(ctx, rand.New(rand.NewPCG(r.Seed, 1)))
	})
	half := len(r.clients) / 2
	for i, clients := range [][]*client{r.clients[:half], r.clients[half:]} {
		hands.Go(func() { n.harmClients(ctx, rand.New(rand.NewPCG(r.Seed, uint64(2+i))), clients) })
	}
	hands.Wait()
	return err
}

// settle asks every contender for one more lease, and returns how long that took.
func (r *run) settle(healed int64) time.Duration {
	for _, c := range r.clients {
		c.finish()
	}
	late := time.After(2 * healedIn) // to tell who is slow from who is stuck
	var last int64
	for _, c := range r.clients {
		for c.left.Load() == 0 {
			select {
			case <-c.gone:
				if c.left.Load() == 0 {
					return 0
				}
			case <-late:
				return 0
			case <-time.After(10 * time.Millisecond):
			}
		}
		last = max(last, c.left.Load())
	}
	return time.Duration(last - healed)
}

// left is what remains at the servers when every client has gone in order.
func (r *run) left(ctx context.Context) (all []string) {
	for _, path := range paths {
		names, _, err := r.admin.Children(path)
		if err != nil && !errors.Is(err, zk.ErrNoNode) { // the container may have been reaped
			names = []string{err.Error()}
		}
		for _, name := range names {
			all = append(all, path+"/"+name)
		}
	}
	for _, server := range r.servers.Servers() {
		watches, err := zkadmin.FourLetter(ctx, server, "wchs")
		if err != nil || !strings.Contains(watches, "Total watches:0") {
			all = append(all, fmt.Sprintf("watches at a server: %s %v", watches, err))
		}
	}
	return all
}
