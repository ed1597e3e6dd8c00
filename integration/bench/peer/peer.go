// Package peer has the compared locks: this library, zk.Lock, and the limit of the ZooKeeper protocol. Package others has the
// locks on other servers. Curator is in package java, because it runs in a JVM.
//
// Each implementation is one file, behind two common interfaces, so that the same code puts load on each.
package peer

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// SessionTimeout is what every session asks for.
const SessionTimeout = 30 * time.Second

// Contender locks and unlocks, for one goroutine at a time.
type Contender interface {
	Lock(ctx context.Context) error
	Unlock() error
}

// Session is one connection to a server. Several goroutines may use the contenders of one session at once.
//
// A contender with state between its locks implements io.Closer.
type Session interface {
	// Contender returns a contender for the lock at path. What the lock needs beforehand is made here.
	Contender(ctx context.Context, path string) (Contender, error)
	Close() error
}

// Election hands leadership over between candidates, for sessions with elections.
type Election interface {
	// Candidate returns a candidate for the election at path. It stands until Resign.
	Candidate(ctx context.Context, path string) (Candidate, error)
}

// Candidate stands for election from its creation on.
type Candidate interface {
	// Elected is closed when the candidate becomes the leader.
	Elected() <-chan struct{}
	// ElectedAt is the time of the notification to the candidate's user. It is valid once Elected is closed.
	ElectedAt() time.Time
	// Resign gives up the leadership.
	Resign() error
}

// Peer is one implementation.
type Peer struct {
	Name string
	Open func(ctx context.Context, address string) (Session, error)
}

// Names of the peers.
const (
	Ours      = "zkrecipes"
	Cohort    = "zkrecipes cohort"
	Lingering = "zkrecipes cohort with Linger"
	OneByOne  = "zkrecipes one by one"
	ZKLock    = "zk.Lock"
	Curator   = "Curator"
	Etcd      = "etcd"
	Redsync   = "redsync"
	Unchecked = "zk.Conn create+delete"
	Listed    = "zk.Conn create+list+delete"
	Pipelined = "zk.Conn pipelined"
	Raw       = "raw socket"
)

// OnZooKeeper returns the peers of this package.
func OnZooKeeper() []Peer {
	return []Peer{
		{Ours, openOurs()},
		{Cohort, openOurs(mutex.WithCohort(mutex.Cohort{}))},
		{Lingering, openOurs(mutex.WithCohort(mutex.Cohort{Linger: time.Second}))},
		{OneByOne, openOneByOne},
		{ZKLock, openZKLock},
		{Unchecked, openConn(newUnchecked)},
		{Listed, openConn(newListed)},
		{Pipelined, openConn(newPipelined)},
		{Raw, openRaw},
	}
}
