package dial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
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
	// OnPanic is called when a function of the user has panicked: the dialer, a function of tls.Config, or a method of the
	// host provider.
	OnPanic(value any, stack []byte)
	// OnFailure is called when a dial or a handshake has failed. isHopeless means that every attempt
	// at every server will fail in the same way.
	OnFailure(err error, isHopeless bool)
}

// Config says where the servers are, and how to reach them.
type Config struct {
	Dialer  zk.Dialer       // the user's; nil: net.Dialer
	Hosts   zk.HostProvider // the user's; nil: the servers given to zk.Connect
	TLS     *tls.Config     // nil: plain TCP
	Network Network
}

// New returns a Dialer. All dials and lookups end with ctx.
func New(ctx context.Context, cfg Config, o Owner) *Dialer {
	cfg.Network = cfg.Network.withDefaults()
	d := &Dialer{owner: o, userCode: &userCode{ctx: ctx, onPanic: o.OnPanic, running: map[string]int{}}}
	d.hosts = &hosts{
		ctx: ctx, initCtx: ctx, inner: d.userCode.wrapHosts(cfg.Hosts), patience: o.Patience, roundPause: o.RoundPause,
		names: &names{
			ctx: ctx, lookup: cfg.Network.LookupHost, run: d.userCode.calls.Run,
			isByName: cfg.TLS != nil && cfg.TLS.ServerName == "", isVerbatim: cfg.Dialer != nil,
		},
	}
	d.open = d.userCode.limitDialer(newDialFunc(ctx, cfg)) //nolint:contextcheck // the session's context is in userCode
	return d
}

// Provider returns the zk.HostProvider for zk.Connect. ctx bounds its Init.
func (d *Dialer) Provider(ctx context.Context) zk.HostProvider {
	d.hosts.initCtx = ctx
	return d.hosts
}

// Addresses returns the number of addresses to try, without taking a lock.
func (d *Dialer) Addresses() int { return d.hosts.countAddresses() }

// PendingLookup returns an error if no server has an address yet and a lookup is under way.
func (d *Dialer) PendingLookup() error { return d.hosts.names.pending() }

// FinishUserCalls refuses further calls of the user's dialer and host provider, and further lookups of names. The channel is
// closed once all running calls and lookups have returned.
func (d *Dialer) FinishUserCalls() <-chan struct{} { return d.userCode.calls.Finish() }

// Call runs fn, which may call code of the user, in a separate goroutine. Call returns the error of fn, or an error once ctx or the
// session ends, when fn may go on. A panic of fn is an error, and is reported to the Owner.
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

// Open opens a socket to server, which the Provider's Next has returned. Unlike Dial, Open records no failure.
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
var errNothing = errors.New("the dialer has returned no connection, and no error")

// newDialFunc returns the function that opens sockets: the user's dialer or the Network's, with TLS on top if configured. The
// timeout of a dial includes the handshake of TLS.
func newDialFunc(ctx context.Context, cfg Config) dialFunc {
	return func(network string, to host, timeout time.Duration) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		var conn net.Conn
		var err error
		if cfg.Dialer != nil {
			conn, err = cfg.Dialer(network, to.address, timeout)
		} else {
			conn, err = cfg.Network.DialContext(ctx, network, to.address)
		}
		if err == nil && conn == nil {
			err = errNothing
		}
		switch {
		case err != nil && to.address != to.server:
			return nil, fmt.Errorf("%s: %w", to.name(), err)
		case err != nil || cfg.TLS == nil:
			return conn, err
		}
		settings := cfg.TLS.Clone()
		if settings.ServerName == "" {
			settings.ServerName = to.name()
		}
		return startTLS(ctx, conn, settings, to.String())
	}
}
