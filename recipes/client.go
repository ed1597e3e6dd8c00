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
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// Client is one ZooKeeper session with the leases held in it. A service needs one client for all its
// recipes. Its methods may be called concurrently.
type Client struct {
	session   *session.Session
	namespace string
}

// Connect opens a session with one of the servers, each "host:port" or "host" for
// port 2181; spaces around them are ignored. It returns when a server has accepted the session and
// the credentials. If ctx or the connect timeout ends first, the error wraps the failure of the last
// attempt, and no attempt continues in the background. Connect fails earlier when every server
// refuses TLS for a reason that another attempt does not change, such as a certificate. Once Connect
// has returned, ctx has no effect.
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
	session, err := session.Connect(ctx, cfg.Config)
	if err != nil {
		return failed(err)
	}
	return &Client{session: session, namespace: cfg.namespace}, nil
}

// parseServers returns the servers without the spaces around them. It fails for an invalid one.
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
			return nil, fmt.Errorf("server %q is a list: give each server as one element, as strings.Split(list, \",\") does", server)
		case strings.Contains(server, "/"):
			return nil, fmt.Errorf("server %q has a path: use WithNamespace for it", server)
		}
	}
	for _, server := range zk.FormatServers(servers) {
		host, port, err := net.SplitHostPort(server)
		if err != nil {
			return nil, fmt.Errorf("server %q: %w", server, err)
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return nil, fmt.Errorf("server %q: %q is not a port", server, port)
		}
		if host == "" || strings.Contains(host, " ") {
			return nil, fmt.Errorf("server %q is not host:port", server)
		}
	}
	return servers, nil
}

// NewClient adopts a connection that the caller has opened, and the event channel that zk.Connect has
// returned with it. The channel must have no other reader. Close does not close the connection; it
// deletes the znodes of the client.
//
// Give the session timeout that the server has granted with [WithSessionTimeout], because it can't be
// read from the connection. A lease is then trusted for 5/12 of the timeout after the last proof of
// life, instead of 2/3, because the connection pings too seldom for more. Without that option leases
// end with ErrSuspended at the first disconnect, and TrustedUntil is zero, because there is no
// deadline. A latch then behaves as under StandardErrorPolicy: it keeps its znode, and a new term
// begins on it after the reconnect.
//
// An adopted connection hides two kinds of pause: one of the process while nothing is held or
// awaited, and one of the network. A lease that is acquired within T/4 after such a pause may be
// trusted for longer than the session lives. In that case the fencing token decides.
//
// [Connect] gives more than NewClient. It closes a connection that hangs, so waits are shorter. It
// leaves a server that refuses to set the watches again after a reconnect; an adopted connection
// stays there and misses later changes. It avoids a data race of zk.Conn, on the last zxid at a
// reconnect with watches. Options for the connection itself are errors of NewClient.
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
	return &Client{session: session.Adopt(conn, events, cfg.Config), namespace: cfg.namespace}, nil
}

// Conn returns the connection, for the user's own requests. The guarantees of this library do not
// cover them: see go-zookeeper/zk for what may be lost.
func (c *Client) Conn() *zk.Conn { return c.session.Conn() }

// State returns the current state: Connected, Suspended, Lost or Closed.
func (c *Client) State() ConnectionState { return ConnectionState(c.session.State()) }

// Subscribe returns the current state and each later one, in order, and a function that ends the
// subscription and closes the channel. The channel is also closed after Closed. The client never
// waits for a reader. A slow reader may miss a Suspended together with the Reconnected after it, but
// never a Lost.
func (c *Client) Subscribe() (states <-chan ConnectionState, stop func()) {
	return session.Subscribe[ConnectionState](c.session)
}

// SessionTimeout returns the timeout that the server has granted in the latest handshake. Leases are
// kept by the shorter of that timeout and the one with which the session was created. For an adopted
// connection it returns the value of [WithSessionTimeout], and zero without that option.
func (c *Client) SessionTimeout() time.Duration { return c.session.Timeout() }

// Close ends every lease and every wait with ErrClosed, deletes their znodes, closes the session, and
// returns when every goroutine of the client has ended. Without a connection it can't delete
// anything: the server does when the session expires. The session of a leader ends when the leader's
// callback has returned.
//
// Close returns within a bounded time. It fails if code of the user has not returned after the
// operation timeout: a callback (ErrStepDownGrace for that of a leader), a dialer, a host provider,
// or a connection of the dialer's. Call Close again to wait for that. Close is idempotent.
//
// Inside a callback of this client, Close starts all that and returns nil at once, because it would
// wait for its caller. Inside a callback of another client it waits.
func (c *Client) Close() error {
	if err := c.session.Close(); err != nil {
		return fmt.Errorf("recipes: %w", err)
	}
	return nil
}

// String returns the state. It leaves out what is secret: the session's id and the credentials.
func (c *Client) String() string {
	if c == nil || c.session == nil {
		return "recipes.Client(nil)"
	}
	return "recipes.Client(" + c.State().String() + ")"
}

// Format writes String for every verb. Without it package fmt would print the secrets for a verb that
// does not suit a pointer.
func (c *Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// attach returns the session, and path with the namespace before it. The recipes' packages reach
// it through package bridge.
func (c *Client) attach(path string) (*session.Session, string, error) {
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
