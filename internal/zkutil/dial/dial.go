package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// Dialer chooses the servers of a session in turn, and opens the sockets to them. Several goroutines may use a Dialer.
type Dialer struct {
	owner    Owner
	open     dialFunc
	hosts    *hosts
	userCode *userCode
	patience patience
	hasTLS   bool

	mu        sync.Mutex       // protects the fields below
	causes    map[string]Cause // of hang-ups, by host
	hasAnswer bool             // a server answered a handshake
}

// Owner is the session for which a Dialer works. Several goroutines may call the methods at a time. The Dialer holds no lock
// during a call.
type Owner interface {
	// Patience returns how long a dial or a handshake may take.
	Patience() time.Duration
	// LimitDial returns how much of patience a dial may take, or an error if no time is left.
	LimitDial(patience time.Duration) (time.Duration, error)
	// RoundPause returns the pause between two rounds of attempts at all servers; 0 stands for zk.Conn's
	// own pause. RoundPause may block until the session ends.
	RoundPause() time.Duration
	// IsSaving reports whether a hold can outlive a reconnect.
	IsSaving() bool
	// IsInUse reports whether a hold, a wait or a request needs the connection.
	IsInUse() bool
	// OnPanic is called after a panic in a user's function, which is the dialer or a function of tls.Config.
	OnPanic(value any, stack []byte)
	// OnFailure is called after a failed dial or handshake.
	OnFailure(err error, refusal Refusal)
}

// Refusal says how the servers refuse the client for a persistent reason.
type Refusal int

// The refusals, the weakest first.
const (
	NoRefusal      Refusal = iota
	LikelyRefusal          // every server has, but one at least by no more than hang-ups, as a server that starts may do
	CertainRefusal         // every attempt at every server will fail in the same way
)

// Config says where the servers are, and how to reach them.
type Config struct {
	Dialer  zk.Dialer   // the user's; nil: net.Dialer
	TLS     *tls.Config // nil: plain TCP
	Network Network
	IsLogin bool // each connection begins with a login, which may go by the server's name
}

// New returns a Dialer. All dials and lookups end with ctx.
func New(ctx context.Context, cfg Config, o Owner) *Dialer {
	cfg.Network = cfg.Network.withDefaults()
	d := &Dialer{
		owner: o, userCode: &userCode{ctx: ctx, onPanic: o.OnPanic, running: map[string]int{}}, hasTLS: cfg.TLS != nil, causes: map[string]Cause{},
	}
	d.hosts = &hosts{
		ctx: ctx, patience: o.Patience, roundPause: o.RoundPause, isInUse: o.IsInUse,
		names: &names{
			ctx: ctx, lookup: cfg.Network.LookupHost, run: d.userCode.calls.Run,
			isByName: cfg.IsLogin || cfg.TLS != nil && cfg.TLS.ServerName == "", isVerbatim: cfg.Dialer != nil,
		},
	}
	d.open = d.userCode.limitDialer(d.newDialFunc(ctx, cfg)) //nolint:contextcheck // the session's context is in userCode
	return d
}

// Provider returns the zk.HostProvider for zk.Connect.
func (d *Dialer) Provider() zk.HostProvider { return d.hosts }

// Addresses returns the number of addresses to try, without taking a lock.
func (d *Dialer) Addresses() int { return d.hosts.countAddresses() }

// PendingLookup returns an error if no server has an address yet and a lookup is under way.
func (d *Dialer) PendingLookup() error { return d.hosts.names.pending() }

// FinishUserCalls refuses further calls of the user's dialer, and further lookups of names. The channel is closed
// once all running calls and lookups return.
func (d *Dialer) FinishUserCalls() <-chan struct{} { return d.userCode.calls.Finish() }

// Call runs fn, which may call code of the user, in a separate goroutine. Call returns the error of fn, or an error once ctx or
// the session ends, although fn may still run. A panic of fn is an error, and is reported to the Owner.
func (d *Dialer) Call(ctx context.Context, purpose string, fn func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.userCode.ctx, cancel)() //nolint:contextcheck // the session's context ends the call, too
	failure, err := callUser(ctx, d.userCode, purpose, func() error { return fn(ctx) }, func(error) {})
	if err != nil {
		return err
	}
	return failure
}

// Open opens a socket to server, which the Provider's Next returned. Unlike Dial, Open records no failure.
func (d *Dialer) Open(network, server string, patience time.Duration) (net.Conn, error) {
	return d.openWithin(patience, network, d.hosts.find(server))
}

func (d *Dialer) openWithin(patience time.Duration, network string, to host) (net.Conn, error) {
	limit, err := d.owner.LimitDial(patience)
	if err != nil {
		return nil, err
	}
	return d.open(network, to, limit)
}

// errNothing is the failure of a dialer that returns neither a connection nor an error.
var errNothing = errors.New("the dialer returned neither a connection nor an error")

// newDialFunc returns the function that opens sockets. It is the user's dialer or the Network's, with TLS on top if
// configured. The timeout of a dial includes the handshake of TLS.
func (d *Dialer) newDialFunc(ctx context.Context, cfg Config) dialFunc {
	return func(network string, to host, timeout time.Duration) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		open := func(ctx context.Context) (conn net.Conn, err error) {
			if cfg.Dialer != nil {
				conn, err = cfg.Dialer(network, to.address, timeout)
			} else {
				conn, err = cfg.Network.DialContext(ctx, network, to.address)
			}
			if err == nil && conn == nil {
				err = errNothing
			}
			return conn, err
		}
		conn, err := open(ctx)
		err = ExplainHangUp(err) // a server that closes connections at once may do so before the dial returns
		switch {
		case err != nil && to.address != to.server:
			return nil, fmt.Errorf("%s: %w", to.name(), err)
		case err != nil || cfg.TLS == nil:
			return conn, err
		}
		return startTLS(ctx, conn, TLSFor(to.name(), cfg.TLS), to.String(), func() Cause { return d.findCause(ctx, to, open) })
	}
}
