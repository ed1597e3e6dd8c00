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
	"github.com/zkrecipes/zkrecipes/internal/zkutil/track"
)

// Client is a ZooKeeper session with the leases held in that session. A service needs a single client for all
// recipes. The methods of a Client may be called concurrently.
type Client struct {
	session   *session.Session
	namespace string
	isView    bool // made by In
}

// Connect opens a session with one of the servers, each "host:port" or "host" for port 2181; surrounding spaces are
// ignored. As in the connect string of other clients, an element may list several servers, and the last server may have
// a path behind it, "host1:port,host2:port/app". This chroot stands in front of all paths as the path of
// [WithNamespace] does; a namespace given as well is below the chroot. Unlike a namespace, a chroot is never created.
// As with other clients, operations fail with zk.ErrNoNode while the chroot does not exist.
//
// Connect returns when a server accepts the session and the credentials. If ctx or the connect timeout ends first,
// the error wraps the failure of the last attempt, and no attempt continues in the background. Connect fails earlier
// when every server refuses TLS for a reason that persists, such as a certificate. After Connect returns, ctx has no
// effect.
func Connect(ctx context.Context, servers []string, opts ...Option) (*Client, error) {
	return open("recipes: connect", servers, opts, func(cfg config) (*session.Session, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, cfg.connectTimeout, fmt.Errorf("connect timeout of %v", cfg.connectTimeout))
		defer cancel()
		s, err := session.Connect(ctx, cfg.Config)
		if err != nil || !cfg.isTracking {
			return s, err
		}
		select {
		case <-track.Start(s): // so that the first loss of the connection finds the other servers
		case <-ctx.Done():
		}
		return s, nil
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
//   - the log has a record at Warn if no server was reached within a second;
//   - the log has a record at Error if every server refuses the client, or a server the credentials. The client
//     tries again all the same.
//
// Requests of the client begin once a server accepts every credential. Requests of [Client.Conn] do not wait.
func Open(servers []string, opts ...Option) (*Client, error) {
	return open("recipes: open", servers, opts, func(cfg config) (*session.Session, error) {
		s, err := session.Open(cfg.Config)
		if err == nil && cfg.isTracking {
			track.Start(s)
		}
		return s, err
	})
}

// Await blocks until the client is connected and its credentials are accepted, and returns nil at once if they are. Call
// Await after [Open] where a program has to know that the ensemble is there, as in a startup probe. Await is not
// necessary before any other call, because every call waits for a server.
//
// If ctx ends first, the error matches the error and the cause of ctx, and wraps the latest failure, as Err of
// [Client.Health] does. The client connects all the same, so Await may be called again. After Close the error is
// ErrClosed.
func (c *Client) Await(ctx context.Context) error {
	err := c.check()
	if err == nil {
		if err = c.session.AwaitReady(ctx); err == nil {
			return nil
		}
		if !errors.Is(err, ErrClosed) {
			err = fmt.Errorf("%w: %w", err, c.session.WhyUnavailable())
		}
	}
	return &OpError{Op: "recipes: await", Err: err}
}

// open checks the arguments, and returns a client with the session that start began.
func open(op string, servers []string, opts []Option, start func(config) (*session.Session, error)) (*Client, error) {
	failed := func(err error) (*Client, error) {
		return nil, &OpError{Op: op, Path: withoutCredentials(servers), Err: err}
	}
	cfg, err := configure(opts)
	if err == nil {
		err = cfg.setServers(servers)
	}
	if err != nil {
		return failed(zkutil.Invalid(err))
	}
	session, err := start(cfg)
	if err != nil {
		return failed(err)
	}
	return &Client{session: session, namespace: cfg.namespace}, nil
}

// In returns a view of the client with a namespace below the client's own. The paths of all recipes made with the view are below both.
// Curator's usingNamespace replaces the namespace instead: use a view of a client without a namespace for the same paths. The view shares
// the client's session, state and log, and ends with the client. Its Close and Shutdown end nothing, and fail with ErrInvalidArgument. The
// namespace is as for [WithNamespace], and its znode is created when needed. In sends nothing to the server.
//
//	stock, err := client.In("stock")
//	…
//	m, err := mutex.New(stock, "/locks/a") // on /stock/locks/a
func (c *Client) In(namespace string) (*Client, error) {
	own, root, err := c.attach("/")
	if err == nil {
		var below string
		if below, err = namespacePath(namespace); err == nil {
			return &Client{session: own, namespace: strings.TrimSuffix(root, "/") + below, isView: true}, nil
		}
		err = zkutil.Invalid(err)
	}
	return nil, &OpError{Op: "recipes: in", Err: err}
}

// withoutCredentials joins the servers into a text for errors. If a server has a password in front, as in a URL,
// withoutCredentials omits everything before the last @, because a password may contain a comma, and be spread over
// two servers.
func withoutCredentials(servers []string) string {
	text := strings.Join(servers, ",")
	if at := strings.LastIndexByte(text, '@'); at >= 0 {
		return "…" + text[at:]
	}
	return text
}

// Conn returns the connection, for the user's own requests. Its paths are those on the servers, without the chroot and the
// namespace, and its creates have the ACL of the call, not that of [WithACL]. The guarantees of the library do not cover those
// requests: go-zookeeper/zk describes the possible losses. Closing the connection closes the client: every
// lease ends with ErrClosed, before the server learns of the close.
func (c *Client) Conn() *zk.Conn { return c.own("conn").Conn() }

// State returns the current state: Connected, Suspended, Lost or Closed.
func (c *Client) State() ConnectionState { return ConnectionState(c.own("state").State()) }

// Subscribe returns the current state and each later one, in order, and a function that ends the subscription
// and closes the channel. The channel is also closed after Closed. The client never waits for a reader. While
// no more than 16 states are unread, a reader misses none. Beyond 16, a slow reader may miss a Suspended
// together with the following Reconnected. A reader misses a Lost, the oldest first, only while more than 300
// Losts are unread, or more than four when the channel is closed. A reader never misses the latest Lost, nor
// the present state.
func (c *Client) Subscribe() (states <-chan ConnectionState, stop func()) {
	return session.Subscribe[ConnectionState](c.own("subscribe"))
}

// SessionTimeout returns the timeout granted by the server in the latest handshake. Leases are kept by the
// least timeout ever granted to the session. Before the first handshake SessionTimeout returns the timeout asked for.
func (c *Client) SessionTimeout() time.Duration { return c.own("session timeout").Timeout() }

// Close is [Client.Shutdown] with the default grace. Close waits an operation timeout for the functions of leaders and of
// Do, an operation timeout for the records of package once if functions returned by then, an operation timeout for the end
// of all leases and waits, and an operation timeout for other callbacks; a hanging connection adds 4/6 of the session
// timeout and five seconds at most.
//
// Close fails if user code is still running by then. Such code is the function or listener of a leader, or the function of
// a Do (ErrStepDownGrace), another callback, a dialer, a connection made by the dialer, or a resolver that ignores the
// context. Call Close again to wait for the user code. Unlike Shutdown, Close does not fail if no server confirms the end
// of the session. The servers then delete the znodes when the session expires, and the log has a record at Warn.
//
// Inside a callback or a function of Do of the same client, Close starts the whole sequence and returns nil at
// once, because Close would otherwise wait for the caller. Inside those of another client Close waits. Close is
// idempotent.
func (c *Client) Close() error {
	if err := c.checkClose(); err != nil {
		return &OpError{Op: "recipes: close", Err: err}
	}
	if err := c.session.Close(); err != nil {
		return fmt.Errorf("recipes: %w", err)
	}
	return nil
}

// Shutdown ends the client in order, and returns when every goroutine of the client ends, or with an error when ctx
// ends. At once, every lease and every wait ends with ErrClosed, and new acquisitions fail with ErrClosed. Shutdown
// then waits for the work that the client called, which is the functions and listeners of leaders, and the functions
// of Do and DoWithin of every recipe. Their contexts are over, and the znode of a term or lock is deleted when the
// last function under it returns, so that no other contender works at the same time. Package once records the end of
// a run before that. The znodes of leases acquired explicitly are deleted at once. Last, the session is closed. If
// commits are slow, Shutdown waits for the server's confirmation as long as the connection and the ctx of the first
// Shutdown last, unless Close is called.
//
// Without a server, Shutdown waits for a server as long as no other contender can be granted a lock that the client
// held, for an operation timeout at most, shared by all znodes. Then Shutdown closes the client even so.
//
// The error names all leftovers:
//
//   - ErrStepDownGrace, with the recipe and the path of each election and each Do whose work was still running
//     when ctx ended. The znode and the session stay until the work returns, and the log names the work once a
//     minute. The client then ends by itself. A program that can't make the work return has to exit;
//   - ErrNodeNotDeleted, with the paths of the znodes whose deletion no server confirmed. The znodes are deleted at the
//     latest when the session expires;
//   - the error and the cause of ctx, if ctx ended. The shutdown continues in the background: call Shutdown again to
//     wait for the end.
//
// Shutdown is idempotent, and may be called at the same time as Close: each call returns the same result, or an
// error at the end of its own bound. Inside a callback or a function of Do of the same client, Shutdown starts
// the whole sequence and returns nil at once, because Shutdown would otherwise wait for the caller.
func (c *Client) Shutdown(ctx context.Context) error {
	if err := c.checkClose(); err != nil {
		return &OpError{Op: "recipes: shutdown", Err: err}
	}
	if err := c.session.Shutdown(ctx); err != nil {
		return fmt.Errorf("recipes: %w", err)
	}
	return nil
}

// String returns the state. It leaves out the session's id and the credentials.
func (c *Client) String() string {
	if c.check() != nil {
		return "recipes.Client(nil)"
	}
	return "recipes.Client(" + c.State().String() + ")"
}

// Format writes String for every verb. Without Format, package fmt would print the session, and so the secrets, for a verb
// unsuited to a pointer.
func (c *Client) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// check fails for a nil client and for a zero value.
func (c *Client) check() error {
	switch {
	case c == nil:
		return zkutil.Invalid(errors.New("the client is nil"))
	case c.session == nil:
		return zkutil.Invalid(errors.New("the client is a zero value; use recipes.Connect"))
	default:
		return nil
	}
}

// checkClose is check for methods that end the session. It also fails for a view.
func (c *Client) checkClose() error {
	if err := c.check(); err != nil {
		return err
	}
	if c.isView {
		return zkutil.Invalid(errors.New("a view made by Client.In has no session of its own: close its client"))
	}
	return nil
}

// own returns the session, for methods that return no error. It panics where check fails.
func (c *Client) own(op string) *session.Session {
	if err := c.check(); err != nil {
		panic(&OpError{Op: "recipes: " + op, Err: err})
	}
	return c.session
}

// attach returns the session, and path prefixed with the namespace. The recipes' packages call attach through
// package bridge.
func (c *Client) attach(path string) (*session.Session, string, error) {
	if err := c.check(); err != nil {
		return nil, "", err
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
