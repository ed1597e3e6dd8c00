// Package peer has the locks that are compared: this library, zk.Lock, and what the ZooKeeper protocol allows at most. Package
// others has those that need more than ZooKeeper. Curator is in package java, because it runs in a JVM.
//
// Each implementation is one file. All of them stand behind two interfaces, so that the load on each is the same code.
package peer

import (
	"context"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// SessionTimeout is what every session asks for.
const SessionTimeout = 30 * time.Second

// Contender locks and unlocks. One goroutine at a time uses it.
type Contender interface {
	Lock(ctx context.Context) error
	Unlock() error
}

// Session is one connection to a server. Contenders of one session are used by several goroutines at once.
//
// A contender that keeps something between its locks implements io.Closer.
type Session interface {
	// Contender returns a contender for the lock at path. What the lock needs beforehand is made here.
	Contender(ctx context.Context, path string) (Contender, error)
	Close() error
}

// Election hands leadership over between candidates, for sessions that have one.
type Election interface {
	// Candidate returns a candidate for the election at path. It stands until Resign.
	Candidate(ctx context.Context, path string) (Candidate, error)
}

// Candidate stands for election from its creation on.
type Candidate interface {
	// Elected is closed when the candidate has become the leader.
	Elected() <-chan struct{}
	// ElectedAt is when the candidate's user was told. Valid once Elected is closed.
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
		{ZKLock, openZKLock},
		{Unchecked, openConn(newUnchecked)},
		{Listed, openConn(newListed)},
		{Pipelined, openConn(newPipelined)},
		{Raw, openRaw},
	}
}
