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

// Option configures a [Client]. An invalid value is an error of Connect or NewClient.
type Option func(*config) error

type config struct {
	session.Config

	connectTimeout time.Duration
	namespace      string
	connectOnly    []string // the given options that NewClient can't follow
}

func configure(opts []Option) (config, error) {
	cfg := config{connectTimeout: defaultConnectTimeout}
	cfg.OperationTimeout, cfg.SlowWait = defaultOperationTimeout, defaultSlowWait
	cfg.ACL = zk.WorldACL(zk.PermAll)
	if err := option.Apply(&cfg, opts); err != nil {
		return cfg, err
	}
	cfg.Retry = cfg.Retry.WithDefaults()
	return cfg, nil
}

// WithSessionTimeout sets the session timeout that Connect asks for; the default is 30 s. The server
// grants it within its own bounds, 2 to 20 ticks by default. For NewClient it is the timeout that the
// server has granted.
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
		cfg.connectOnly = append(cfg.connectOnly, "WithConnectTimeout")
		return option.CheckPositive("connect timeout", d)
	}
}

// WithOperationTimeout bounds how long one attempt waits for a connection, and how long Release and
// Close wait for an answer. The default is 10 s.
func WithOperationTimeout(d time.Duration) Option {
	return func(cfg *config) error {
		cfg.OperationTimeout = d
		return option.CheckPositive("operation timeout", d)
	}
}

// RetryPolicy bounds the attempts at one step of a recipe, such as creating the znode, after a
// failure that may pass: a lost connection, a lost session. Zero fields mean the default.
//
// Each wait between attempts is half as long again as the one before, with a jitter of half the wait
// in either direction. The bounds are checked between attempts. One attempt that waits for a
// connection takes up to the operation timeout. After an answer with a code that this library does
// not know, such as that for an exceeded quota, a step is repeated for one operation timeout, and in
// an election until it succeeds. Deletions of znodes are repeated without a bound.
type RetryPolicy struct {
	InitialInterval time.Duration // before the second attempt, without the jitter; 50 ms
	MaxInterval     time.Duration // the longest wait, jitter included; 2 s
	MaxElapsed      time.Duration // of all attempts at a step; default: no bound but the context
	MaxAttempts     int           // counting the first; default: no bound but the context
}

// WithRetryPolicy sets the policy for failures that may pass. The default goes on
// until the caller's context ends.
func WithRetryPolicy(policy RetryPolicy) Option {
	return func(cfg *config) error {
		cfg.Retry = zkutil.Retry(policy)
		return option.CheckRetry("retry policy", cfg.Retry)
	}
}

// WithNamespace puts every path below /namespace, as Curator does. It may have
// several segments: "team/service".
func WithNamespace(namespace string) Option {
	return func(cfg *config) error {
		path := "/" + strings.TrimPrefix(namespace, "/")
		if err := zkutil.ValidatePath(path); err != nil {
			return fmt.Errorf("namespace: %w", err)
		}
		cfg.namespace = strings.TrimSuffix(path, "/")
		return nil
	}
}

// WithACL sets the ACL of every znode that the client creates, parents included.
// The default is open to everyone. Note that the server checks the right to delete
// on the parent: an ACL on the lock's directory is what protects its children.
func WithACL(acl ...zk.ACL) Option {
	return func(cfg *config) error {
		if len(acl) == 0 {
			return errors.New("acl: empty")
		}
		cfg.ACL = slices.Clone(acl)
		return nil
	}
}

// WithMaxSessionBytes bounds the paths of the client's ephemeral znodes: the sum of their lengths in bytes,
// and four for each. The default is 512 KiB, which is about 6,000 contenders. n must be positive.
//
// When a session ends, the servers write all these paths into one transaction. If that is longer than
// their jute.maxbuffer (1 MiB) and as much extra, they can't read it, and the ensemble neither goes on nor
// starts again (ZOOKEEPER-4306). So n must stay below the jute.maxbuffer of all servers. A znode counts
// from before its create is sent until it is known to be gone, or its session is. Znodes that the user creates with
// [Client.Conn] are not counted, nor are the parents of contenders, which are not ephemeral.
//
// No more than 500 contenders of one client wait at a time with a znode on one path. Further ones wait
// inside the process, in the order in which they came, and get a znode as others are granted or leave.
// Their turn counts from then: contenders of other clients may come before them. Where the bytes don't
// suffice for another contender on a path on which the client has one already, it waits in the same way.
// On any other path it fails with [ErrSessionFull].
func WithMaxSessionBytes(n int) Option {
	return func(cfg *config) error {
		cfg.MaxBytes = n
		if n <= 0 {
			return fmt.Errorf("max session bytes: %d is not positive", n)
		}
		return nil
	}
}

// WithAuth presents a credential on every connection, such as "digest" with "user:password". It may
// be given several times. Without TLS it crosses the network in clear text. The server accepts any
// digest: with a wrong password, the first operation that an ACL refuses fails with zk.ErrNoAuth, and
// the error names the znode. A "digest" without a colon is an error.
func WithAuth(scheme string, credential []byte) Option {
	return func(cfg *config) error {
		if scheme == "" {
			return errors.New("auth: empty scheme")
		}
		if scheme == "digest" && !bytes.Contains(credential, []byte(":")) {
			return errors.New(`auth: a digest credential is "user:password", and this one has no colon`)
		}
		cfg.Auth = append(cfg.Auth, session.Auth{Scheme: scheme, Credential: bytes.Clone(credential)})
		cfg.connectOnly = append(cfg.connectOnly, "WithAuth")
		return nil
	}
}

// WithTLS connects to the servers' secure client port. An empty ServerName is replaced by the host's
// name as it was given to Connect.
func WithTLS(settings *tls.Config) Option {
	return func(cfg *config) error {
		if settings == nil {
			return errors.New("tls: nil config")
		}
		cfg.TLS = settings.Clone()
		cfg.connectOnly = append(cfg.connectOnly, "WithTLS")
		return nil
	}
}

// WithDialer replaces net.Dialer. The dialer gets host names, which are not resolved before. If a
// dial does not return within its timeout, the client tries another server. A connection that the
// dial returns later is closed.
func WithDialer(dial zk.Dialer) Option {
	return func(cfg *config) error {
		if dial == nil {
			return errors.New("dialer: nil")
		}
		cfg.Dialer = dial
		cfg.connectOnly = append(cfg.connectOnly, "WithDialer")
		return nil
	}
}

// WithHostProvider replaces the choice of the next server. The default takes the servers in random
// order, resolves names again in each round, and makes the first attempt after a loss at once. A
// method that does not return keeps the client from connecting, and delays Close by a sixth of the
// session timeout.
func WithHostProvider(hosts zk.HostProvider) Option {
	return func(cfg *config) error {
		if hosts == nil {
			return errors.New("host provider: nil")
		}
		cfg.Hosts = hosts
		cfg.connectOnly = append(cfg.connectOnly, "WithHostProvider")
		return nil
	}
}

// WithID sets what others see of the contenders of this client, unless their recipe has a WithID of its own. The
// default is "host/pid", the name of the host and the number of the process. At most 64 KiB.
func WithID(id string) Option {
	return func(cfg *config) error {
		if id == "" {
			return errors.New("id: empty")
		}
		cfg.ID = []byte(id)
		return option.CheckID(id)
	}
}

// WithSlowWait sets after which time an acquisition that still waits is written to the log, once, at Warn: with
// its position, and the id of the holder. The default is a minute; 0 is never. It does not concern elections, in
// which waiting is normal.
func WithSlowWait(d time.Duration) Option {
	return func(cfg *config) error {
		cfg.SlowWait = d
		if d < 0 {
			return fmt.Errorf("slow wait: %v is negative", d)
		}
		return nil
	}
}

// WithLogger sets the logger of the client and its recipes. The default is slog.Default at the time
// of each record. There is one record for an event; docs/operations.md lists them. At Error: errors and panics of
// the user's functions that no handler gets, and what a server refuses for good. At Warn: losses, long waits,
// and failures that are repeated. At Info: changes of the connection, and terms of leadership. A logger with
// slog.DiscardHandler silences all that. Neither session ids nor credentials are logged: a session's password
// can be computed from its id.
func WithLogger(logger *slog.Logger) Option {
	return func(cfg *config) error {
		if logger == nil {
			return errors.New("logger: nil")
		}
		cfg.Logger = logger
		return nil
	}
}

// ErrorPolicy decides what ends a lease.
type ErrorPolicy int

const (
	// SessionErrorPolicy is the default. A lease ends when its session has expired, or when the
	// last proof that the session lives is too old. A lost connection alone ends nothing.
	SessionErrorPolicy ErrorPolicy = iota
	// StandardErrorPolicy is Curator's default: a lost connection ends a lease too. As in Curator,
	// the znode of a latch's term stays, and the latch leads again on it after the reconnect. A
	// lock has to be acquired again, and a selector joins again at the tail.
	StandardErrorPolicy
)

// WithErrorPolicy sets what ends a lease.
func WithErrorPolicy(policy ErrorPolicy) Option {
	return func(cfg *config) error {
		cfg.SuspendEnds = policy == StandardErrorPolicy
		if policy != SessionErrorPolicy && policy != StandardErrorPolicy {
			return fmt.Errorf("error policy: unknown value %d", policy)
		}
		return nil
	}
}
