package session

import (
	"context"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// adopted carries requests over a zk.Conn whose frames are not seen. zk.Conn queues what it can't send,
// and sends it in the next session. It knows no context, and answers a request at the latest when the
// connection ends. It has no create2: the answer to one has no Stat.
type adopted struct {
	conn *zk.Conn
	now  func() time.Time // the clock of trust
}

// Send runs the requests one after the other. After one without an answer the others are not sent: they
// would go to another connection.
func (a adopted) Send(requests ...*wire.Request) {
	go func() { // counted by enterGate; ends when zk.Conn answers or loses the connection; joined in Close
		answer := wire.Answer{Refused: -1}
		for _, r := range requests {
			if answer.Err == nil || zkutil.IsRefused(answer.Err) {
				sentAt := a.now()
				answer = a.ask(r)
				answer.SentAt = sentAt
			} else {
				answer = wire.Answer{Err: zk.ErrNoServer, Refused: -1}
			}
			r.To.Receive(answer)
		}
	}()
}

func (a adopted) ask(r *wire.Request) (answer wire.Answer) {
	answer.Refused = -1
	switch r.Op {
	case proto.OpCreate, proto.OpCreate2:
		answer.Path, answer.Err = a.conn.Create(r.Path, r.Data, r.Flags, r.ACL)
	case proto.OpCreateContainer:
		answer.Path, answer.Err = a.conn.CreateContainer(r.Path, r.Data, r.Flags, r.ACL)
	case proto.OpDelete:
		answer.Err = a.conn.Delete(r.Path, r.Version)
	case proto.OpSetData:
		var stat *zk.Stat
		if stat, answer.Err = a.conn.Set(r.Path, r.Data, r.Version); answer.Err == nil {
			answer.Stat = *stat
		}
	case proto.OpSync:
		answer.Path, answer.Err = a.conn.Sync(r.Path)
	case proto.OpMulti:
		a.check(r, &answer)
	default:
		a.read(r, &answer)
	}
	return answer
}

// read sends a request that reads, and perhaps sets a watch.
func (a adopted) read(r *wire.Request, answer *wire.Answer) {
	var stat *zk.Stat
	isThere := true
	switch {
	case r.Op == proto.OpGetData && r.IsWatch:
		answer.Data, stat, answer.Events, answer.Err = a.conn.GetW(r.Path)
	case r.Op == proto.OpGetData:
		answer.Data, stat, answer.Err = a.conn.Get(r.Path)
	case r.Op == proto.OpExists && r.IsWatch:
		isThere, stat, answer.Events, answer.Err = a.conn.ExistsW(r.Path)
	case r.Op == proto.OpExists:
		isThere, stat, answer.Err = a.conn.Exists(r.Path)
	case r.IsWatch:
		answer.Children, stat, answer.Events, answer.Err = a.conn.ChildrenW(r.Path)
	default:
		answer.Children, stat, answer.Err = a.conn.Children(r.Path)
	}
	if answer.Err == nil && stat != nil {
		answer.Stat = *stat
	}
	if answer.Err == nil && !isThere {
		answer.Err = zk.ErrNoNode
	}
}

// check sends a transaction that checks whether znodes exist.
func (a adopted) check(r *wire.Request, answer *wire.Answer) {
	checks := make([]any, len(r.Checks))
	for i, path := range r.Checks {
		checks[i] = &zk.CheckVersionRequest{Path: path, Version: anyVersion}
	}
	parts, err := a.conn.Multi(checks...)
	answer.Err = err
	for i, part := range parts {
		if part.Error != nil && answer.Refused < 0 {
			answer.Refused = i
		}
	}
}

// addAuth presents a credential, which zk.Conn does again on each later connection.
func (s *Session) addAuth(ctx context.Context, auth Auth) error {
	t, err := s.enterGate(ctx, 1, false)
	if err != nil {
		return err
	}
	answer := make(chan error, 1)
	go func() { // counted by enterGate; ends when zk.Conn answers or loses the connection; joined in Close
		answer <- t.conn.AddAuth(auth.Scheme, auth.Credential)
		s.mu.Lock()
		s.releaseLocked()
		s.mu.Unlock()
		s.life.calls.Done()
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return zkutil.Interrupted(ctx, nil)
	case <-s.life.open.Done():
		return zkutil.ErrClosed
	}
}
