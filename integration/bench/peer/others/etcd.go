// Package others has the locks on servers other than ZooKeeper: etcd's concurrency, and redsync on one Redis. The package is
// separate because of its imports.
package others

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/zkrecipes/zkrecipes/integration/bench/peer"
)

// etcdSession is a client of etcd. Each contender has its own lease, because etcd's lock identifies its owners by leases.
// Leases are kept for later contenders.
type etcdSession struct {
	client *clientv3.Client

	mu     sync.Mutex
	leases []*concurrency.Session // guarded by mu; unused leases
}

// OpenEtcd connects to one server.
func OpenEtcd(ctx context.Context, address string) (peer.Session, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, DialTimeout: peer.SessionTimeout, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	if _, err := client.Get(ctx, "no such key"); err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &etcdSession{client: client}, nil
}

// Close lets the leases of waiting contenders end with their time.
func (s *etcdSession) Close() error {
	s.mu.Lock()
	leases := s.leases
	s.leases = nil
	s.mu.Unlock()
	var errs []error
	for _, lease := range leases {
		errs = append(errs, lease.Close())
	}
	return errors.Join(append(errs, s.client.Close())...)
}

func (s *etcdSession) takeLease() (*concurrency.Session, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.leases); n > 0 {
		lease := s.leases[n-1]
		s.leases = s.leases[:n-1]
		return lease, nil
	}
	return concurrency.NewSession(s.client, concurrency.WithTTL(int(peer.SessionTimeout.Seconds())))
}

func (s *etcdSession) giveLease(lease *concurrency.Session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leases = append(s.leases, lease)
}

func (s *etcdSession) Contender(_ context.Context, path string) (peer.Contender, error) {
	lease, err := s.takeLease()
	if err != nil {
		return nil, err
	}
	return &etcdContender{session: s, lease: lease, mutex: concurrency.NewMutex(lease, path)}, nil
}

type etcdContender struct {
	session *etcdSession
	lease   *concurrency.Session
	mutex   *concurrency.Mutex
}

func (c *etcdContender) Lock(ctx context.Context) error { return c.mutex.Lock(ctx) }
func (c *etcdContender) Unlock() error                  { return c.mutex.Unlock(context.Background()) }

// Close gives the lease back.
func (c *etcdContender) Close() error {
	c.session.giveLease(c.lease)
	return nil
}

// etcdCandidate campaigns from its creation on.
type etcdCandidate struct {
	session  *etcdSession
	lease    *concurrency.Session
	election *concurrency.Election
	elected  chan struct{}
	at       time.Time // valid once elected is closed
	err      error     // likewise
}

func (s *etcdSession) Candidate(ctx context.Context, path string) (peer.Candidate, error) {
	lease, err := s.takeLease()
	if err != nil {
		return nil, err
	}
	c := &etcdCandidate{session: s, lease: lease, election: concurrency.NewElection(lease, path), elected: make(chan struct{})}
	go func() { // ends with the election; Resign waits for it
		c.err = c.election.Campaign(ctx, "candidate")
		c.at = time.Now()
		close(c.elected)
	}()
	return c, nil
}

func (c *etcdCandidate) Elected() <-chan struct{} { return c.elected }
func (c *etcdCandidate) ElectedAt() time.Time     { return c.at }

func (c *etcdCandidate) Resign() error {
	<-c.elected
	if c.err != nil {
		return c.err
	}
	err := c.election.Resign(context.Background())
	c.session.giveLease(c.lease)
	return err
}
