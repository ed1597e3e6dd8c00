package peer

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// rawSession is the limit of the protocol: create2 and the list in one flush, a watch on the predecessor, one delete. It is no
// lock to be used: nothing is done for lost answers, expired sessions or cancelled contexts.
type rawSession struct{ conn *rawConn }

func openRaw(ctx context.Context, address string) (Session, error) {
	conn, err := dialRaw(ctx, address)
	if err != nil {
		return nil, err
	}
	return rawSession{conn}, nil
}

func (s rawSession) Close() error { return s.conn.Close() }

// Contender creates the lock's directory, so that the limit has no steps for a fresh path.
func (s rawSession) Contender(_ context.Context, dir string) (Contender, error) {
	answers, err := s.conn.send(rawRequest{proto.OpCreate, createBody(dir, 0)})
	if err != nil {
		return nil, err
	}
	_, code, err := s.conn.receive(answers[0])
	if err != nil {
		return nil, err
	}
	if code != proto.CodeOK && code != proto.CodeNodeExists {
		return nil, fmt.Errorf("peer: create %s: %s", dir, proto.CodeName(code))
	}
	return &rawContender{
		conn: s.conn, dir: dir,
		join: rawRequest{proto.OpCreate2, createBody(dir+"/"+namePrefix(), proto.FlagEphemeral|proto.FlagSequential)},
		list: rawRequest{proto.OpGetChildren, proto.NewEncoder().String(dir).Bool(false).Body()},
	}, nil
}

func createBody(path string, flags int32) []byte {
	return proto.NewEncoder().String(path).Buffer([]byte{}).ACL(zk.WorldACL(zk.PermAll)).Int32(flags).Body()
}

type rawContender struct {
	conn       *rawConn
	dir, own   string
	join, list rawRequest
}

func (c *rawContender) Lock(ctx context.Context) error {
	answers, err := c.conn.send(c.join, c.list)
	if err != nil {
		return err
	}
	created, code, err := c.conn.receive(answers[0])
	if err != nil {
		return err
	}
	if code != proto.CodeOK {
		return fmt.Errorf("peer: create2: %s", proto.CodeName(code))
	}
	c.own = created.String()
	names, err := c.listed(answers[1])
	for err == nil {
		p := locate(names, path.Base(c.own))
		if p.ahead == 0 {
			return nil
		}
		if err := c.await(ctx, c.dir+"/"+p.predecessor); err != nil {
			return err
		}
		if p.ahead == 1 {
			return nil
		}
		if answers, err = c.conn.send(c.list); err == nil {
			names, err = c.listed(answers[0])
		}
	}
	return err
}

func (c *rawContender) listed(answer <-chan rawReply) ([]string, error) {
	d, code, err := c.conn.receive(answer)
	if err != nil {
		return nil, err
	}
	if code != proto.CodeOK {
		return nil, fmt.Errorf("peer: getChildren: %s", proto.CodeName(code))
	}
	names := d.Strings()
	if d.Err() != nil || !containsSuffix(names, c.own) {
		return nil, errors.New("peer: the own znode is not in the list")
	}
	return names, nil
}

func containsSuffix(names []string, own string) bool {
	for _, name := range names {
		if strings.HasSuffix(own, name) {
			return true
		}
	}
	return false
}

// await waits for the deletion of the znode. It registers the watch before it sends the request, because the event may be
// read first.
func (c *rawContender) await(ctx context.Context, znode string) error {
	gone := make(chan string, 1)
	if err := c.conn.watch(znode, gone); err != nil {
		return err
	}
	answers, err := c.conn.send(rawRequest{proto.OpGetData, proto.NewEncoder().String(znode).Bool(true).Body()})
	if err != nil {
		return err
	}
	_, code, err := c.conn.receive(answers[0])
	if err != nil {
		return err
	}
	if code == proto.CodeNoNode {
		c.conn.unwatch(znode, gone)
		return nil
	}
	select {
	case _, ok := <-gone:
		if !ok {
			return errRawClosed
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (c *rawContender) Unlock() error {
	return c.conn.call(proto.OpDelete, proto.NewEncoder().String(c.own).Int32(-1).Body())
}

// rawCandidate joins at its creation. It is a contender that leads once it has the lock.
type rawCandidate struct {
	contender Contender
	elected   chan struct{}
	at        time.Time // valid once elected is closed
	err       error     // likewise
}

func (s rawSession) Candidate(ctx context.Context, path string) (Candidate, error) {
	contender, err := s.Contender(ctx, path)
	if err != nil {
		return nil, err
	}
	c := &rawCandidate{contender: contender, elected: make(chan struct{})}
	go func() { // ends with the election; Resign waits for it
		c.err = contender.Lock(ctx)
		c.at = time.Now()
		close(c.elected)
	}()
	return c, nil
}

func (c *rawCandidate) Elected() <-chan struct{} { return c.elected }
func (c *rawCandidate) ElectedAt() time.Time     { return c.at }

func (c *rawCandidate) Resign() error {
	<-c.elected
	if c.err != nil {
		return c.err
	}
	return c.contender.Unlock()
}
