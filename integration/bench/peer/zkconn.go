package peer

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"path"

	"github.com/go-zookeeper/zk"
)

// connSession calls zk.Conn directly. It is a limit for everything built on zk.Conn, not a usable lock, because it does
// not handle lost answers, expired sessions or cancelled contexts.
type connSession struct {
	conn *zk.Conn
	new  func(queue) Contender
}

func openConn(newContender func(queue) Contender) func(context.Context, string) (Session, error) {
	return func(ctx context.Context, address string) (Session, error) {
		conn, err := connect(ctx, address)
		if err != nil {
			return nil, err
		}
		return connSession{conn, newContender}, nil
	}
}

func (s connSession) Close() error {
	s.conn.Close()
	return nil
}

// Contender creates the lock's directory, so that the limit has no steps for a fresh path.
func (s connSession) Contender(_ context.Context, dir string) (Contender, error) {
	_, err := s.conn.Create(dir, nil, 0, zk.WorldACL(zk.PermAll))
	if err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return nil, err
	}
	return s.new(queue{conn: s.conn, dir: dir, prefix: dir + "/" + namePrefix()}), nil
}

// namePrefix returns a prefix as long as zk.Lock's, so that lists have the same size.
func namePrefix() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	return "_c_" + hex.EncodeToString(id[:]) + "-lock-"
}

// queue is what the contenders on zk.Conn have in common.
type queue struct {
	conn   *zk.Conn
	dir    string
	prefix string
	own    string // path of the own znode
}

func (q *queue) create() (err error) {
	q.own, err = q.conn.Create(q.prefix, []byte{}, zk.FlagEphemeral|zk.FlagSequence, zk.WorldACL(zk.PermAll))
	return err
}

func (q *queue) list() ([]string, error) {
	names, _, err := q.conn.Children(q.dir)
	return names, err
}

func (q *queue) Unlock() error { return q.conn.Delete(q.own, -1) }

// place is the place of a contender in a list: the name of its predecessor, and the number of contenders ahead.
type place struct {
	predecessor string
	ahead       int
	listed      bool // whether the own name is in the list
}

// locate finds the own name in a list, without sorting it.
func locate(names []string, own string) place {
	const digits = 10
	number := func(name string) string { return name[len(name)-digits:] }
	var p place
	for _, name := range names {
		switch {
		case name == own:
			p.listed = true
		case number(name) < number(own):
			p.ahead++
			if p.predecessor == "" || number(name) > number(p.predecessor) {
				p.predecessor = name
			}
		}
	}
	return p
}

// await waits until the predecessor is deleted.
func (q *queue) await(ctx context.Context, predecessor string) error {
	_, _, events, err := q.conn.GetW(q.dir + "/" + predecessor)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	if err != nil {
		return err
	}
	select {
	case event := <-events:
		return event.Err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// unchecked creates and deletes, and never checks whether it is first. It excludes no other contender.
type unchecked struct{ queue }

func newUnchecked(q queue) Contender { return &unchecked{q} }

func (c *unchecked) Lock(context.Context) error { return c.create() }

// listed creates and then lists, until it is first.
type listed struct{ queue }

func newListed(q queue) Contender { return &listed{q} }

func (c *listed) Lock(ctx context.Context) error {
	if err := c.create(); err != nil {
		return err
	}
	for {
		names, err := c.list()
		if err != nil {
			return err
		}
		p := locate(names, path.Base(c.own))
		if p.ahead == 0 {
			return nil
		}
		if err := c.await(ctx, p.predecessor); err != nil {
			return err
		}
	}
}

// pipelined sends the list right after the create and, if only one contender is ahead, treats the deletion of that
// predecessor as the grant.
type pipelined struct{ queue }

func newPipelined(q queue) Contender { return &pipelined{q} }

func (c *pipelined) Lock(ctx context.Context) error {
	created := make(chan error, 1)
	go func() { created <- c.create() }() // ends with the request; received below
	names, err := c.list()
	if err := errors.Join(err, <-created); err != nil {
		return err
	}
	for {
		p := locate(names, path.Base(c.own))
		if p.listed && p.ahead == 0 {
			return nil
		}
		if p.listed {
			if err := c.await(ctx, p.predecessor); err != nil {
				return err
			}
			if p.ahead == 1 {
				return nil
			}
		}
		if names, err = c.list(); err != nil {
			return err
		}
	}
}
