package recipes

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
)

const (
	defaultSessionTimeout   = 30 * time.Second
	defaultConnectTimeout   = 15 * time.Second
	defaultOperationTimeout = 10 * time.Second
	defaultSlowWait         = time.Minute
)

// Option configures a [Client]. An invalid value is an error of Connect or Open.
type Option func(*config) error

type config struct {
	session.Config

	connectTimeout time.Duration
	namespace      string
	isTracking     bool // see WithEnsembleTracking
}

func configure(opts []Option) (config, error) {
	cfg := config{connectTimeout: defaultConnectTimeout}
	cfg.SessionTimeout, cfg.OperationTimeout, cfg.SlowWait = defaultSessionTimeout, defaultOperationTimeout, defaultSlowWait
	cfg.ACL = zk.WorldACL(zk.PermAll)
	if err := option.Apply(&cfg, opts); err != nil {
		return cfg, err
	}
	cfg.Retry = cfg.Retry.WithDefaults()
	return cfg, nil
}

// WithSessionTimeout sets the session timeout that Connect asks for; the default is 30 s. The server grants a
// timeout within its own bounds, 2 to 20 ticks by default.
func WithSessionTimeout(d time.Duration) Option {
	return func(cfg *config) error {
		cfg.SessionTimeout = d
		if d > 0 && (d < time.Millisecond || d.Milliseconds() > math.MaxInt32) {
			return fmt.Errorf("session timeout: %v is not between a millisecond and 24 days", d)
		}
		return option.CheckPositive("session timeout", d)
	}
}

// WithConnectTimeout bounds Connect; the default is 15 s.
func WithConnectTimeout(d time.Duration) Option {
	return func(cfg *config) error {
		cfg.connectTimeout = d
		return option.CheckPositive("connect timeout", d)
	}
}

// WithOperationTimeout bounds how long a single attempt waits for a connection, and how long Release and Close
// wait for an answer. The default is 10 s.
func WithOperationTimeout(d time.Duration) Option {
	return func(cfg *config) error {
		cfg.OperationTimeout = d
		return option.CheckPositive("operation timeout", d)
	}
}

// RetryPolicy bounds the attempts at a single step of a recipe, such as creating the znode, after a transient failure,
// such as a lost connection or session. Zero fields mean the default.
//
// Waits grow by a factor of 1.5, with ±50 % jitter. The bounds are checked between attempts. An attempt that waits
// for a connection takes up to the operation timeout. After an answer with a code unknown to this library, a step is
// repeated for an operation timeout, and in an election until the step succeeds. A step refused for a persistent
// reason, such as a missing permission or an exceeded quota, is not repeated, except in an election. Deletions of
// znodes are repeated without a bound.
type RetryPolicy struct {
	InitialInterval time.Duration // before the second attempt, without the jitter; 50 ms
	MaxInterval     time.Duration // the longest wait, jitter included; 2 s
	MaxElapsed      time.Duration // of all attempts at a step; by default only the context is a bound
	MaxAttempts     int           // counting the first; by default only the context is a bound
}

// WithRetryPolicy sets the policy for transient failures. The default retries until the caller's context ends.
func WithRetryPolicy(policy RetryPolicy) Option {
	return func(cfg *config) error {
		cfg.Retry = zkutil.Retry(policy)
		return option.CheckRetry("retry policy", cfg.Retry)
	}
}

// WithNamespace puts every path below /namespace, as Curator does. The namespace may have several segments:
// "team/service".
func WithNamespace(namespace string) Option {
	return func(cfg *config) (err error) {
		cfg.namespace, err = namespacePath(namespace)
		return err
	}
}

// namespacePath returns the path of a namespace, and "" for the namespace "".
func namespacePath(namespace string) (string, error) {
	path := "/" + strings.TrimPrefix(namespace, "/")
	if err := zkutil.ValidatePath(path); err != nil {
		return "", fmt.Errorf("namespace: %w", err)
	}
	return strings.TrimSuffix(path, "/"), nil
}

// WithACL sets the ACL of every znode created by the client, parents included. The default is open to everyone. Note
// that the server checks the right to delete on the parent, so the ACL of the lock's directory protects the children.
func WithACL(acl ...zk.ACL) Option {
	return func(cfg *config) error {
		if len(acl) == 0 {
			return errors.New("acl: empty")
		}
		cfg.ACL = slices.Clone(acl)
		return nil
	}
}

// WithMaxSessionBytes bounds the sum of the lengths in bytes of the client's ephemeral paths, plus four for each path.
// The default is 512 KiB, which is about 6,000 contenders. n must be positive.
//
// When a session ends, the servers write all these paths into one transaction. If the transaction is longer than the
// servers' jute.maxbuffer (1 MiB) and as much extra, the servers can't read the transaction, and the ensemble neither
// continues nor starts again (ZOOKEEPER-4306). So n must stay below the jute.maxbuffer of all servers. A znode counts
// from before the create is sent until the znode or the session is known to be over. Znodes that the user creates
// with [Client.Conn] are not counted, nor are the parents of contenders, which are not ephemeral.
//
// No more than 500 contenders of one client wait at a time with a znode on one path. Further contenders wait inside
// the process, in the order of arrival, and get a znode as others are granted or leave. Their turn counts from the
// znode, so contenders of other clients may be first. If the free bytes don't suffice for another contender, but do
// together with the bytes of the client's contenders on the same path, the new contender waits in the same way.
// Otherwise the new contender fails with [ErrSessionFull] at once.
func WithMaxSessionBytes(n int) Option {
	return func(cfg *config) error {
		cfg.MaxBytes = n
		if n <= 0 {
			return fmt.Errorf("max session bytes: %d is not positive", n)
		}
		return nil
	}
}

// WithAuth presents a credential on every connection, such as "digest" with "user:password". WithAuth may be
// given several times. Without TLS a credential crosses the network in clear text. The server accepts any
// digest: with a wrong password, the first operation that an ACL refuses fails with zk.ErrNoAuth, and the error
// names the znode. A "digest" without a colon is an error.
func WithAuth(scheme string, credential []byte) Option {
	return func(cfg *config) error {
		if scheme == "" {
			return errors.New("auth: empty scheme")
		}
		if scheme == "digest" && !bytes.Contains(credential, []byte(":")) {
			return errors.New(`auth: a digest credential is "user:password", but this one has no colon`)
		}
		cfg.Auth = append(cfg.Auth, session.Auth{Scheme: scheme, Credential: bytes.Clone(credential)})
		return nil
	}
}

// WithTLS connects to the servers' secure client port. An empty ServerName is replaced by the name of the dialled
// server, as given to Connect. So servers may share an address, behind a proxy that distinguishes the servers by name.
// The functions in settings, such as VerifyConnection, run in goroutines of the client, for each dial. A function that
// does not return, or panics, is a failed attempt to connect. VerifyConnection gets the server's name in ServerName,
// also if the name is an IP address.
//
// Certificates on disk may be replaced while the client runs, as the example shows. GetClientCertificate reads the
// client's at each connection, and VerifyConnection the authorities'.
func WithTLS(settings *tls.Config) Option {
	return func(cfg *config) error {
		if settings == nil {
			return errors.New("tls: nil config")
		}
		cfg.TLS = settings.Clone()
		return nil
	}
}

// WithDialer replaces net.Dialer. The dialer gets unresolved host names. If a dial does not return within the
// timeout, the client tries another server. A connection returned later is closed. A panic of the dialer is a
// failed attempt to connect, and is logged.
func WithDialer(dial zk.Dialer) Option {
	return func(cfg *config) error {
		if dial == nil {
			return errors.New("dialer: nil")
		}
		cfg.Dialer = dial
		return nil
	}
}

// WithID sets the id by which others see the contenders of this client, unless the recipe has its own WithID.
// The default is "host/pid", the name of the host and the number of the process. At most 64 KiB.
func WithID(id string) Option {
	return func(cfg *config) error {
		if id == "" {
			return errors.New("id: empty")
		}
		cfg.ID = []byte(id)
		return option.CheckID(id)
	}
}

// WithSlowWait sets the time after which a waiting acquisition is logged at Warn: with the position of the
// waiter, the id of the holder, and how many contenders wait. The default is a minute; 0 means never. As long as
// acquisitions wait for longer, the record is repeated, at most once a minute for a path. WithSlowWait does not
// apply to elections, in which waiting is normal.
func WithSlowWait(d time.Duration) Option {
	return func(cfg *config) error {
		cfg.SlowWait = d
		if d < 0 {
			return fmt.Errorf("slow wait: %v is negative", d)
		}
		return nil
	}
}

// WithSlowHold sets the time after which a held lock or permit is logged at Warn, once for each acquisition: with
// its path, its token, and the id of this client. The default is 0, which means never, except for a run of package
// once: it is logged after the time of [WithSlowWait], because it keeps all hosts from the next occurrence.
// WithSlowHold does not apply to elections, whose terms may last for ever.
func WithSlowHold(d time.Duration) Option {
	return func(cfg *config) error {
		cfg.SlowHold = d
		if d < 0 {
			return fmt.Errorf("slow hold: %v is negative", d)
		}
		return nil
	}
}

// WithLogger sets the logger of the client and its recipes. The default is slog.Default at the time of each record.
// Each event has a single record; docs/operations.md lists all records. At Error: errors and panics of the user's
// functions that no handler gets, and permanent refusals by a server. At Warn: losses, long waits, and repeated
// failures. At Info: changes of the connection, and terms of leadership. A logger with slog.DiscardHandler silences
// everything. The handler is called in the background, and never blocks the client. While a call does not return, up to
// 1,024 records wait; any further records are dropped, and the next written record has their number as records_dropped.
// After a negative answer of Enabled, the logger is asked again about the level once a second at most. Neither session
// ids nor credentials are logged, because a session's password can be computed from its id.
func WithLogger(logger *slog.Logger) Option {
	return func(cfg *config) error {
		if logger == nil {
			return errors.New("logger: nil")
		}
		cfg.Logger = logger
		return nil
	}
}

// ErrorPolicy decides which events end a lease.
type ErrorPolicy int

const (
	// SessionErrorPolicy is the default. A lease ends when its session expires, or when the last proof of life is too
	// old. A lost connection alone ends nothing.
	SessionErrorPolicy ErrorPolicy = iota
	// StandardErrorPolicy is Curator's default. A lost connection ends a lease too. As in Curator, the znode of a
	// latch's term remains, and the latch leads again on the same znode after the reconnect. A lock has to be acquired
	// again, and a selector joins again at the tail.
	StandardErrorPolicy
)

// WithErrorPolicy sets which events end a lease.
func WithErrorPolicy(policy ErrorPolicy) Option {
	return func(cfg *config) error {
		cfg.SuspendEnds = policy == StandardErrorPolicy
		if policy != SessionErrorPolicy && policy != StandardErrorPolicy {
			return fmt.Errorf("error policy: unknown value %d", policy)
		}
		return nil
	}
}
