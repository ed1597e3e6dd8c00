package recipes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// Client is a ZooKeeper session with the leases held in that session. A service needs a single client for all
// recipes. The methods of a Client may be called concurrently.
type Client struct {
	session   *session.Session
	namespace string
}

// Connect opens a session with one of the servers, each "host:port" or "host" for port 2181; surrounding spaces
// are ignored. As in the connect string of other clients, an element may list several servers, and the last
// server may have a path behind it, "host1:port,host2:port/app": a chroot, which has the effect of
// [WithNamespace]; a namespace given as well is below the chroot.
//
// Connect returns when a server has accepted the session and the credentials. If ctx or the
// connect timeout ends first, the error wraps the failure of the last attempt, and no attempt continues in the
// background. Connect fails earlier when every server refuses TLS for a reason that persists, such as a
// certificate. Once Connect has returned, ctx has no effect.
func Connect(ctx context.Context, servers []string, opts ...Option) (*Client, error) {
	return open("recipes: connect", servers, opts, func(cfg config) (*session.Session, error) {
		ctx, cancel := context.WithTimeout(ctx, cfg.connectTimeout)
		defer cancel()
		return session.Connect(ctx, cfg.Config)
	})
}

// Open is [Connect] for a service that starts while no server may be there, as sql.Open is for a database: Open
// returns at once, and connects in the background for as long as the client lives. Until the first handshake
// the state is Suspended. Elections may be started, and begin when there is a server. Acquisitions wait as they
// do in an outage, within the retry policy and their contexts.
//
// An invalid argument is an error of Open, as of Connect. Everything else shows later:
//
//   - [Client.Health] has the latest failure, and a call that waits too long returns the failure. While the
//     servers refuse a credential, acquisitions fail with the refusal after an operation timeout;
//   - the log has a record at Warn if no server was reached within the connect timeout, see
//     [WithConnectTimeout];
//   - the log has a record at Error if every server refuses the client, or a server the credentials. The client
//     tries again all the same.
//
// Requests of the client begin once a server has accepted every credential. Requests of [Client.Conn] do not
// wait. Init of a host provider runs before Open returns, within the connect timeout.
func Open(servers []string, opts ...Option) (*Client, error) {
	return open("recipes: open", servers, opts, func(cfg config) (*session.Session, error) {
		ctx, cancel := context.WithTimeout(context.Background(), cfg.connectTimeout)
		defer cancel()
		return session.Open(ctx, cfg.Config, cfg.connectTimeout)
	})
}

// open checks the arguments, and returns a client with the session that start has begun.
func open(op string, servers []string, opts []Option, start func(config) (*session.Session, error)) (*Client, error) {
	failed := func(err error) (*Client, error) {
		return nil, &OpError{Op: op, Path: withoutCredentials(servers), Err: err}
	}
	cfg, err := configure(opts)
	if err == nil {
		err = cfg.setServers(servers)
	}
	if err == nil && cfg.TrackEnsemble && cfg.Hosts != nil {
		err = errors.New("WithEnsembleTracking and WithHostProvider: both choose the servers, give one of them")
	}
	if err != nil {
		return failed(zkutil.Invalid(err))
	}
	if cfg.SessionTimeout == 0 {
		cfg.SessionTimeout = defaultSessionTimeout
	}
	session, err := start(cfg)
	if err != nil {
		return failed(err)
	}
	return &Client{session: session, namespace: cfg.namespace}, nil
}

// withoutCredentials joins the servers into a text for errors. If a server has a password in front, as in a
// URL, withoutCredentials omits everything before the last @: a password may contain a comma, and be spread
// over two servers.
func withoutCredentials(servers []string) string {
	text := strings.Join(servers, ",")
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		return "…" + text[at:]
	}
	return text
}

// NewClient adopts a connection opened by the caller, and the event channel returned by zk.Connect with the
// connection. The channel must have no other reader. Close deletes the znodes of the client and leaves the
// connection open. If the znodes can't be deleted, because no server is reachable, Close returns
// ErrNodeNotDeleted, and the deletion continues as long as the connection is open: a program that exits closes
// both, the client first.
//
// Pass the session timeout granted by the server with [WithSessionTimeout], because the connection does not
// expose the timeout. A lease is then trusted for 5/12 of the timeout after the last proof of life, instead of
// 2/3, because the connection pings too seldom for more. Without WithSessionTimeout, leases end with
// ErrSuspended at the first disconnect, and TrustedUntil is zero, because no deadline is known. A latch then
// behaves as under StandardErrorPolicy: the latch keeps the znode, and a new term begins on the same znode
// after the reconnect.
//
// An adopted connection hides two kinds of pause: a pause of the process while nothing is held or awaited, and
// a pause of the network. A lease acquired within T/4 after such a pause may be trusted for longer than the
// session lives. In such a case the fencing token decides.
//
// An adopted connection can't survive servers being emptied, or restored from a backup: the servers hang up
// without an answer, and zk.Conn keeps asking for the old session forever. The log reports the refused session
// at Warn. Then close the client and the connection, and open new ones. A client of [Connect] gets a new
// session.
//
// A client of [Connect] does more. It closes a connection that hangs, so waits are shorter. It leaves a server
// that refuses to set the watches again after a reconnect; an adopted connection stays and misses later
// changes. It removes the watches of observers, and of attempts that have timed out; on an adopted connection
// such watches stay at the server until they fire, because zk.Conn can't remove a watch. It ends all leases
// before a close of the connection takes effect; on an adopted connection they end afterwards, when others may
// have the lock already, so close the client first. It avoids a data race of zk.Conn, on the last zxid at a
// reconnect with watches. NewClient fails if opts has an option for the connection itself.
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

// Conn returns the connection, for the user's own requests. The guarantees of the library do not cover those
// requests: go-zookeeper/zk describes the possible losses. Closing the connection closes the client: every
// lease ends with ErrClosed, before the server learns of the close if [Connect] has opened the connection.
func (c *Client) Conn() *zk.Conn { return c.session.Conn() }

// State returns the current state: Connected, Suspended, Lost or Closed.
func (c *Client) State() ConnectionState { return ConnectionState(c.session.State()) }

// Subscribe returns the current state and each later one, in order, and a function that ends the subscription
// and closes the channel. The channel is also closed after Closed. The client never waits for a reader. While
// no more than 16 states are unread, a reader misses none. Beyond 16, a slow reader may miss a Suspended
// together with the following Reconnected. A reader misses a Lost, the oldest first, only while more than 300
// Losts are unread, or more than four when the channel is closed. A reader never misses the latest Lost, nor
// the present state.
func (c *Client) Subscribe() (states <-chan ConnectionState, stop func()) {
	return session.Subscribe[ConnectionState](c.session)
}

// SessionTimeout returns the timeout granted by the server in the latest handshake. Leases are kept by the
// shorter of the timeouts granted in the latest handshake and at the creation of the session. For an adopted
// connection SessionTimeout returns the value of [WithSessionTimeout], and zero without the option.
func (c *Client) SessionTimeout() time.Duration { return c.session.Timeout() }

// Close is [Client.Shutdown] with the default grace. Close waits an operation timeout for the functions of
// leaders, an operation timeout for the end of all leases and waits, and an operation timeout for other
// callbacks; a hanging connection adds 4/6 of the session timeout and five seconds at most.
//
// Close fails if user code has not returned by then: the function or listener of a leader (ErrStepDownGrace),
// another callback, a dialer, a host provider, a connection made by the dialer, or a resolver that ignores the
// context. Call Close again to wait for the user code. Unlike Shutdown, Close does not fail if no server has
// confirmed the end of the session: the servers then delete the znodes when the session expires, and the log
// has a record at Warn.
//
// For an adopted connection, whose session lives on, Close fails with ErrNodeNotDeleted if znodes could not be
// deleted within the operation timeout, and writes a record at Warn. Until the znodes are gone, other
// contenders wait. The deletion and the goroutines behind it continue until the deletion is confirmed or the
// connection ends: close the connection to end both. Call Close again to find out whether the deletion is done.
//
// Inside a callback of the same client, Close starts the whole sequence and returns nil at once, because Close
// would otherwise wait for the caller. Inside a callback of another client Close waits. Close is idempotent.
func (c *Client) Close() error {
	if err := c.session.Close(); err != nil {
		return fmt.Errorf("recipes: %w", err)
	}
	return nil
}

// Shutdown ends the client in order, and returns when every goroutine of the client has ended, or with an error
// when ctx ends. At once, every lease and every wait ends with ErrClosed, and new acquisitions fail with
// ErrClosed. Elections step down: the term's context ends, the leader's function or listener returns, and then
// the znode is deleted. The znodes of all other leases and waits are deleted meanwhile. Then the session is
// closed.
//
// Without a server, Shutdown waits for a server as long as no other contender can have been granted a lock that
// the client held, for an operation timeout at most, shared by all znodes. Then Shutdown closes the client all
// the same.
//
// The error names all leftovers:
//
//   - ErrStepDownGrace, with the recipe and the path of each election whose work was still running when ctx
//     ended. The znode and the session stay until the work returns, so that no successor leads while the work
//     still runs. The client then ends by itself. A program that can't make the work return has to exit;
//   - ErrNodeNotDeleted, with the paths of the znodes whose deletion no server has confirmed. The znodes are
//     gone at the latest when the session expires. For an adopted connection see [Client.Close];
//   - the error and the cause of ctx, if ctx has ended. The shutdown continues in the background: call Shutdown
//     again to wait for the end.
//
// Shutdown is idempotent, and may be called at the same time as Close: each call returns the same result, or an
// error at the end of its own bound. Inside a callback of the same client, Shutdown starts the whole sequence
// and returns nil at once, because Shutdown would otherwise wait for the caller.
func (c *Client) Shutdown(ctx context.Context) error {
	if err := c.session.Shutdown(ctx); err != nil {
		return fmt.Errorf("recipes: %w", err)
	}
	return nil
}

// String returns the state. The secrets are left out: the session's id and the credentials.
func (c *Client) String() string {
	if c == nil || c.session == nil {
		return "recipes.Client(nil)"
	}
	return "recipes.Client(" + c.State().String() + ")"
}

// Format writes String for every verb. Without Format, package fmt would print the secrets for a verb unsuited
// to a pointer.
func (c *Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// attach returns the session, and path prefixed with the namespace. The recipes' packages call attach through
// package bridge.
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
