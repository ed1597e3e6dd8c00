package recipes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Client is one ZooKeeper session, and the leases held in it. A service needs one,
// for all its recipes. Its methods may be called concurrently.
type Client struct {
	session   *zkutil.Session
	namespace string
}

// Connect opens a session with one of the servers, each "host:port" or "host" for
// port 2181; spaces around them are ignored. It returns once the session stands and the credentials are accepted.
// If ctx or the connect timeout ends first, the error wraps the failure of the last
// attempt, and nothing goes on behind it. Where every server refuses TLS for a reason that
// another attempt does not change, such as a certificate, it fails before that. The context
// bounds nothing later.
func Connect(ctx context.Context, servers []string, opts ...Option) (*Client, error) {
	failed := func(err error) (*Client, error) {
		return nil, &OpError{Op: "recipes: connect", Path: strings.Join(servers, ","), Err: err}
	}
	cfg, err := configure(opts)
	if err == nil {
		cfg.Servers, err = parseServers(servers)
	}
	if err != nil {
		return failed(zkutil.Invalid(err))
	}
	if cfg.SessionTimeout == 0 {
		cfg.SessionTimeout = defaultSessionTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.connectTimeout)
	defer cancel()
	session, err := zkutil.Connect(ctx, cfg.Config)
	if err != nil {
		return failed(err)
	}
	return &Client{session: session, namespace: cfg.namespace}, nil
}

// parseServers returns the servers without the spaces around them, or what is wrong with one.
func parseServers(given []string) ([]string, error) {
	servers := make([]string, len(given))
	for i, server := range given {
		servers[i] = strings.TrimSpace(server)
	}
	if strings.Join(servers, "") == "" {
		return nil, errors.New("no servers given")
	}
	for i, server := range servers {
		switch {
		case server == "":
			return nil, fmt.Errorf("server %d of %d is empty", i+1, len(servers))
		case strings.Contains(server, ","):
			return nil, fmt.Errorf("server %q is a list: give each server as an element, as strings.Split(list, \",\") does", server)
		case strings.Contains(server, "/"):
			return nil, fmt.Errorf("server %q has a path: give that to WithNamespace", server)
		}
	}
	for _, server := range zk.FormatServers(servers) {
		host, port, err := net.SplitHostPort(server)
		if err != nil {
			return nil, fmt.Errorf("server %q: %w", server, err)
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("server %q: %q is no port", server, port)
		}
		if host == "" || strings.Contains(host, " ") {
			return nil, fmt.Errorf("server %q is not host:port", server)
		}
	}
	return servers, nil
}

// NewClient adopts a connection that somebody else has opened, with the event
// channel that came with it, which must have no other reader. The negotiated
// session timeout can't be seen from outside the connection: tell it with
// [WithSessionTimeout], as the server granted it. Without it leases end with
// ErrSuspended at the first disconnect, and TrustedUntil is zero: there is no
// deadline. As under StandardErrorPolicy, a latch then keeps its znode, and a new term begins on
// it after the reconnect. With it a lease is trusted for 5/12 of the timeout after the last proof of
// life, instead of 2/3: the connection pings too seldom for more.
//
// Two pauses can't be seen on an adopted connection: of the process while nothing is held
// or awaited, and of the line. What is acquired within T/4 after one may be trusted for
// longer than the session lives: there the fencing token decides.
//
// [Connect] gives more. A connection that hangs can't be cut here, so waits may be
// longer. A server that refuses to set the watches again after a reconnect is not left
// here for another try, and what changes later is not heard of. And zk.Conn has a data
// race of its own, on the last zxid at a reconnect with watches, that Connect keeps
// away. Options that shape a connection are errors here.
//
// Close never closes an adopted connection; it deletes what the client has left.
func NewClient(conn *zk.Conn, events <-chan zk.Event, opts ...Option) (*Client, error) {
	cfg, err := configure(opts)
	switch {
	case err != nil:
	case conn == nil || events == nil:
		err = errors.New("connection and event channel must not be nil")
	case len(cfg.connectOnly) > 0:
		err = fmt.Errorf("%s: only for Connect", strings.Join(cfg.connectOnly, ", "))
	}
	if err != nil {
		return nil, &OpError{Op: "recipes: new client", Err: zkutil.Invalid(err)}
	}
	return &Client{session: zkutil.Adopt(conn, events, cfg.Config), namespace: cfg.namespace}, nil
}

// Conn returns the connection, for requests of the user's own. They are not part of
// the library's guarantees: see go-zookeeper/zk for what may be lost.
func (c *Client) Conn() *zk.Conn { return c.session.Conn() }

// State returns the current state: Connected, Suspended, Lost or Closed.
func (c *Client) State() ConnectionState { return ConnectionState(c.session.State()) }

// Subscribe returns the states as they change, in order, the current one first, and
// a function that ends the subscription and closes the channel. The channel is also
// closed after Closed. The client never waits for a reader: one that falls far
// behind may miss a Suspended together with the Reconnected after it, never a Lost.
func (c *Client) Subscribe() (states <-chan ConnectionState, stop func()) {
	return zkutil.Subscribe[ConnectionState](c.session)
}

// SessionTimeout returns what the server granted in the latest handshake. A lease is kept
// by the lesser of that and what the session was created with. For an adopted connection
// it is what the client was told, zero if nothing.
func (c *Client) SessionTimeout() time.Duration { return c.session.Timeout() }

// Close ends every lease and every wait with ErrClosed, removes their znodes, closes
// the session, and returns when every goroutine of the client has ended. It is
// idempotent. Without a server it can't remove anything: the server does, when the
// session expires. It returns within a bounded time, whatever the user's code does: the
// only error is that a callback of the user still runs after the operation timeout,
// ErrStepDownGrace if a leader's, or that a dialer, a host provider or a connection of the
// dialer's does not return. The session of a leader ends when its callback has returned.
// Close may be called again to wait for the rest. Inside a callback of this client Close asks
// for all that and returns nil at once; inside one of another client it waits.
func (c *Client) Close() error {
	if err := c.session.Close(); err != nil {
		return fmt.Errorf("recipes: %w", err)
	}
	return nil
}

// String returns the state, and none of the secrets: the session's id and credentials.
func (c *Client) String() string {
	if c == nil || c.session == nil {
		return "recipes.Client(nil)"
	}
	return "recipes.Client(" + c.State().String() + ")"
}

// Format writes String whatever the verb: with one that does not suit a pointer package
// fmt would print all that it points to.
func (c *Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// Attach is for the recipes of this module: it gives the session, and path with the
// namespace before it.
func (c *Client) Attach(access zkutil.Access, path string) (*zkutil.Session, string, error) {
	access.Check()
	if c == nil || c.session == nil {
		return nil, "", zkutil.Invalid(errors.New("the client is nil"))
	}
	if err := zkutil.ValidatePath(path); err != nil {
		return nil, "", zkutil.Invalid(err)
	}
	switch {
	case c.namespace == "":
		return c.session, path, nil
	case path == "/":
		return c.session, c.namespace, nil
	default:
		return c.session, c.namespace + path, nil
	}
}
