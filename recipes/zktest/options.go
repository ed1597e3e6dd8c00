package zktest

import (
	"crypto/tls"
	"fmt"
	"time"
)

// Option changes what a server is like.
type Option func(*config) error

type config struct {
	address    string
	servers    int
	tick       time.Duration
	touch      time.Duration
	minTimeout time.Duration
	maxTimeout time.Duration
	reap       time.Duration
	ttl        bool
	tls        *tls.Config
}

func defaults() config {
	return config{
		address: "127.0.0.1:0", servers: 1, tick: 50 * time.Millisecond,
		minTimeout: 100 * time.Millisecond, maxTimeout: time.Hour, reap: time.Minute,
	}
}

// WithAddress listens on an address of the caller's choice, for a program that others
// connect to. The default is a free port of 127.0.0.1. With several servers only the
// port 0 will do.
func WithAddress(address string) Option {
	return func(c *config) error {
		if address == "" {
			return fmt.Errorf("zktest: empty address")
		}
		c.address = address
		return nil
	}
}

// WithServers makes an ensemble of n servers with an address each: see [Server.Addrs].
// They share one tree, which is what clients see of an ensemble that works; Stop,
// Freeze and Isolate take single servers away. The default is 1.
func WithServers(n int) Option {
	return func(c *config) error {
		if n < 1 {
			return fmt.Errorf("zktest: %d servers", n)
		}
		c.servers = n
		return nil
	}
}

// WithTickTime sets the unit of the server's clock: a session ends with the tick in
// which its time runs out. The default is 50 ms.
func WithTickTime(tick time.Duration) Option {
	return func(c *config) error {
		if tick < time.Millisecond {
			return fmt.Errorf("zktest: tick time %v is below 1ms", tick)
		}
		c.tick = tick
		return nil
	}
}

// WithTouchInterval sets how often the servers tell their leader which sessions they
// have heard of. A session's time counts from the last such report with it in, as in a
// real ensemble, where followers report twice a tick. Zero is the default: each request
// counts at once, as on a real server that stands alone.
func WithTouchInterval(d time.Duration) Option {
	return func(c *config) error {
		if d < 0 {
			return fmt.Errorf("zktest: touch interval %v", d)
		}
		c.touch = d
		return nil
	}
}

// WithSessionTimeouts bounds the session timeouts that clients get, whatever they ask
// for. The default is 100 ms to an hour. [Server.SetSessionTimeouts] changes the bounds
// later.
func WithSessionTimeouts(shortest, longest time.Duration) Option {
	return func(c *config) error {
		if err := checkTimeouts(shortest, longest); err != nil {
			return err
		}
		c.minTimeout, c.maxTimeout = shortest, longest
		return nil
	}
}

func checkTimeouts(shortest, longest time.Duration) error {
	if shortest < time.Millisecond || longest < shortest {
		return fmt.Errorf("zktest: session timeouts from %v to %v", shortest, longest)
	}
	return nil
}

// WithReapInterval sets how often empty containers and znodes that have outlived their
// time are removed. The default is a minute, as on a real server.
func WithReapInterval(d time.Duration) Option {
	return func(c *config) error {
		if d <= 0 {
			return fmt.Errorf("zktest: reap interval %v", d)
		}
		c.reap = d
		return nil
	}
}

// WithTTLNodes lets clients make znodes with a TTL. A real server refuses them as
// Unimplemented unless it is started with zookeeper.extendedTypesEnabled, and so does
// this one by default.
func WithTTLNodes() Option {
	return func(c *config) error {
		c.ttl = true
		return nil
	}
}

// WithTLS makes every connection one with TLS, through [Server.Dialer] too; settings
// needs a certificate at least. Without it there is no TLS. A silence, such as that of
// Partition, begins behind the handshake of TLS.
func WithTLS(settings *tls.Config) Option {
	return func(c *config) error {
		if settings == nil {
			return fmt.Errorf("zktest: no TLS settings")
		}
		c.tls = settings.Clone()
		return nil
	}
}
