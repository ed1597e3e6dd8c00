package zktest

import (
	"crypto/tls"
	"fmt"
	"time"
)

// Option configures a server.
type Option func(*config) error

type config struct {
	address    string
	servers    int
	tick       time.Duration
	touch      time.Duration
	rate       float64 // of the servers' clock
	minTimeout time.Duration
	maxTimeout time.Duration
	reap       time.Duration
	ttl        bool
	tls        *tls.Config

	passwords    map[string]string // of the users who may log in over SASL; nil: SASL is off
	saslRequired bool

	unknown UnknownOp
	lacking map[Op]bool
	traits  traits
}

func defaults() config {
	return config{
		address: "127.0.0.1:0", servers: 1, tick: 50 * time.Millisecond, rate: 1,
		minTimeout: 100 * time.Millisecond, maxTimeout: time.Hour, reap: time.Minute, traits: dialects[ZooKeeper38],
	}
}

// WithAddress sets the listening address, for a program that other processes connect to.
// The default is a free port of 127.0.0.1. An ensemble of several servers requires port
// 0.
func WithAddress(address string) Option {
	return func(c *config) error {
		if address == "" {
			return fmt.Errorf("zktest: empty address")
		}
		c.address = address
		return nil
	}
}

// WithServers creates an ensemble of n servers with an address each (see [Server.Addrs]). The servers share one tree,
// as a working ensemble appears to its clients; Stop, Freeze and Isolate take single servers away. They serve clients
// while a majority runs: three servers survive the stop of one, two servers do not. The default is 1.
func WithServers(n int) Option {
	return func(c *config) error {
		if n < 1 {
			return fmt.Errorf("zktest: %d servers", n)
		}
		c.servers = n
		return nil
	}
}

// WithTickTime sets the unit of the server's clock. A session expires at the end of the tick in which its timeout runs
// out. The default is 50 ms.
func WithTickTime(tick time.Duration) Option {
	return func(c *config) error {
		if tick < time.Millisecond {
			return fmt.Errorf("zktest: tick time %v is below 1ms", tick)
		}
		c.tick = tick
		return nil
	}
}

// WithTouchInterval sets how often the servers report to their leader which sessions they
// have heard from. A session's timeout counts from the last report that includes the
// session, as in a real ensemble, where followers report twice per tick. Zero is the
// default: each request counts at once, as on a real standalone server.
func WithTouchInterval(d time.Duration) Option {
	return func(c *config) error {
		if d < 0 {
			return fmt.Errorf("zktest: touch interval %v", d)
		}
		c.touch = d
		return nil
	}
}

// WithClockRate makes the servers' clock run at another rate than the clients', for example
// 9.0/8: session timeouts, ticks and touch intervals pass in 8/9 of their length. The delays
// of faults, such as SlowCommits, do not change. The default is 1.
func WithClockRate(rate float64) Option {
	return func(c *config) error {
		if !(rate > 0 && rate <= 1000) {
			return fmt.Errorf("zktest: clock rate %v", rate)
		}
		c.rate = rate
		return nil
	}
}

// byClock returns how long a time by the servers' clock takes.
func (c *config) byClock(d time.Duration) time.Duration { return time.Duration(float64(d) / c.rate) }

// WithSessionTimeouts bounds the session timeouts granted to clients. The default is 100 ms to an hour.
// [Server.SetSessionTimeouts] changes the bounds later.
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

// WithReapInterval sets how often the server removes empty containers and znodes whose
// TTL has run out. The default is a minute, as on a real server.
func WithReapInterval(d time.Duration) Option {
	return func(c *config) error {
		if d <= 0 {
			return fmt.Errorf("zktest: reap interval %v", d)
		}
		c.reap = d
		return nil
	}
}

// WithTTLNodes lets clients create znodes with a TTL. By default the server refuses such
// znodes as Unimplemented, as a real server does unless zookeeper.extendedTypesEnabled is
// set.
func WithTTLNodes() Option {
	return func(c *config) error {
		c.ttl = true
		return nil
	}
}

// WithTLS makes every connection use TLS, [Server.Dialer] included; settings needs at
// least a certificate. By default no connection uses TLS. A silence, such as that of
// Partition, begins after the TLS handshake.
func WithTLS(settings *tls.Config) Option {
	return func(c *config) error {
		if settings == nil {
			return fmt.Errorf("zktest: no TLS settings")
		}
		c.tls = settings.Clone()
		return nil
	}
}
