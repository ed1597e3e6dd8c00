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
)

const (
	defaultSessionTimeout   = 30 * time.Second
	defaultConnectTimeout   = 15 * time.Second
	defaultOperationTimeout = 10 * time.Second
)

// Option configures a [Client]. A wrong value is an error of Connect or NewClient.
type Option func(*config) error

type config struct {
	zkutil.Config

	connectTimeout time.Duration
	namespace      string
	connectOnly    []string // options given that NewClient can't honour
}

func configure(opts []Option) (config, error) {
	cfg := config{connectTimeout: defaultConnectTimeout}
	cfg.OperationTimeout = defaultOperationTimeout
	cfg.ACL = zk.WorldACL(zk.PermAll)
	for _, opt := range opts {
		if opt == nil {
			return cfg, errors.New("nil option")
		}
		if err := opt(&cfg); err != nil {
			return cfg, err
		}
	}
	cfg.Retry = cfg.Retry.WithDefaults()
	return cfg, nil
}

func positive(name string, d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%s: %v is not positive", name, d)
	}
	return nil
}

// WithSessionTimeout sets the session timeout to ask for; the default is 30 s. The
// server grants it within its own bounds, 2 to 20 ticks by default. To NewClient it
// tells what was granted.
func WithSessionTimeout(d time.Duration) Option {
	return func(cfg *config) error {
		cfg.SessionTimeout = d
		if d > 0 && (d < time.Millisecond || d.Milliseconds() > math.MaxInt32) {
			return fmt.Errorf("session timeout: %v is not between a millisecond and 24 days", d)
		}
		return positive("session timeout", d)
	}
}

// WithConnectTimeout bounds Connect; the default is 15 s.
func WithConnectTimeout(d time.Duration) Option {
	return func(cfg *config) error {
		cfg.connectTimeout = d
		cfg.connectOnly = append(cfg.connectOnly, "WithConnectTimeout")
		return positive("connect timeout", d)
	}
}

// WithOperationTimeout bounds how long one attempt waits for a connection, and how
// long Release and Close wait for an answer; the default is 10 s.
func WithOperationTimeout(d time.Duration) Option {
	return func(cfg *config) error {
		cfg.OperationTimeout = d
		return positive("operation timeout", d)
	}
}

// RetryPolicy bounds the attempts at one step of a recipe, such as creating the
// znode, after a failure that may pass: a lost connection, a lost session. An answer with a
// code that is not known here, as for an exceeded quota, is repeated for one operation
// timeout, and in an election until it passes. The waits between attempts grow exponentially,
// by half each, with a jitter of half the wait in either direction. Zero fields mean the
// default.
// The bounds are looked at between attempts; one that waits for a connection takes up
// to the operation timeout. What has to be undone is retried without a bound.
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
		if min(policy.InitialInterval, policy.MaxInterval, policy.MaxElapsed) < 0 || policy.MaxAttempts < 0 {
			return errors.New("retry policy: negative field")
		}
		cfg.Retry = zkutil.Retry(policy)
		return nil
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

// WithAuth presents a credential on every connection, such as "digest" with
// "user:password". It may be given several times. Without TLS it crosses the network
// in clear text. The server accepts any digest: a wrong password shows as zk.ErrNoAuth
// of the first operation that an ACL refuses, with the znode named. A "digest" without a
// colon is refused.
func WithAuth(scheme string, credential []byte) Option {
	return func(cfg *config) error {
		if scheme == "" {
			return errors.New("auth: empty scheme")
		}
		if scheme == "digest" && !bytes.Contains(credential, []byte(":")) {
			return errors.New(`auth: a digest credential is "user:password", and this one has no colon`)
		}
		cfg.Auth = append(cfg.Auth, zkutil.Auth{Scheme: scheme, Credential: bytes.Clone(credential)})
		cfg.connectOnly = append(cfg.connectOnly, "WithAuth")
		return nil
	}
}

// WithTLS connects to the servers' secure client port. An empty ServerName is filled
// in with the host's name as it was given to Connect.
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

// WithDialer replaces net.Dialer. Names are not resolved then: the dialer gets them. A dial
// that does not return within its timeout is given up for another server, and a connection
// that it brings later is closed.
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

// WithHostProvider replaces the choice of the next server. The default one takes
// them in random order, resolves names anew in each round, and makes the first
// attempt after a loss at once. A method that does not return keeps the client from
// connecting, and holds Close up for a sixth of the session timeout.
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

// WithLogger sets where the client and its recipes log; the default is slog.Default, as it
// is when the record is made. At Error: errors and panics of the user's functions that no
// handler takes. At Warn: losses, and what goes wrong and is repeated. At Debug: states
// of the connection. Only a logger with slog.DiscardHandler silences all that. Session ids are
// never logged: a session's password follows from them.
func WithLogger(logger *slog.Logger) Option {
	return func(cfg *config) error {
		if logger == nil {
			return errors.New("logger: nil")
		}
		cfg.Logger = logger
		return nil
	}
}

// ErrorPolicy says what ends a lease.
type ErrorPolicy int

const (
	// SessionErrorPolicy is the default: a lease ends with its session, or with the
	// proof that it lives. A lost connection alone ends nothing.
	SessionErrorPolicy ErrorPolicy = iota
	// StandardErrorPolicy is Curator's default: a lost connection ends a lease too. The znode
	// of a latch's term stays, as Curator's does, and the latch leads again on it after the
	// reconnect; a lock has to be acquired again, and a selector stands again at the tail.
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
