package schedule

import (
	"time"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// meet is the rule of a schedule: it causes the troubles planned for a request.
func (a *arena) meet(r zktest.Request) zktest.Fault {
	if r.Op == zktest.OpPing {
		return zktest.Fault{}
	}
	c := a.owner[r.Server]
	t, met := c.next(r)
	var fault zktest.Fault
	if met {
		fault = a.strike(c, r, t)
	}
	if isWrite(r.Op) && a.referee.executes(r, fault) {
		a.referee.proof(r.Session, r.Time)
	}
	if r.Op == zktest.OpDelete {
		a.handOver(c)
	}
	return fault
}

// next counts a client's request, and returns the trouble planned for the request.
func (c *contender) next(r zktest.Request) (t trouble, met bool) {
	c.referee.mu.Lock()
	defer c.referee.mu.Unlock()
	c.referee.clients[r.Session] = c
	n := c.requests[r.Op]
	c.requests[r.Op]++
	if t, met = c.plan.troubles[nth{r.Op, n}]; met {
		c.addTroubleLocked(t)
		c.referee.recordLocked("%s: %v %d, %s: %v", c, r.Op, n, r.Path, t)
	}
	return t, met
}

// addTroubleLocked records a trouble of the client, and its duration.
func (c *contender) addTroubleLocked(t trouble) {
	c.troubled = true
	if end := time.Now().Add(t.d); end.After(c.calmFrom) {
		c.calmFrom = end
	}
}

// handOver causes trouble for the next contender in the queue, just before a delete makes it the first.
func (a *arena) handOver(from *contender) {
	queue := a.referee.queue()
	j := a.referee
	j.mu.Lock()
	t, met := from.plan.handover[from.deletes]
	from.deletes++
	j.mu.Unlock()
	if !met || len(queue) < 2 {
		return
	}
	_, stat, _ := a.srv.Get(queue[1])
	for _, c := range a.contenders {
		if c.client.Conn().SessionID() == stat.EphemeralOwner && stat.EphemeralOwner != 0 && !c.isQuietByPlan() {
			j.mu.Lock()
			c.addTroubleLocked(t)
			j.recordLocked("%s: next in the queue: %v", c, t)
			j.mu.Unlock()
			if t.kind == deleteOwn {
				a.remove(queue[1])
			} else {
				a.strike(c, zktest.Request{Session: stat.EphemeralOwner, Server: c.servers[0]}, t)
			}
		}
	}
}

// strike causes a trouble. Its effects on sessions, znodes and servers precede the request.
func (a *arena) strike(c *contender, r zktest.Request, t trouble) zktest.Fault {
	if r.Session == 0 { // the handshake of a new session has a connection but no session
		switch t.kind {
		case disconnect:
			return zktest.Fault{Lost: zktest.RequestLost}
		case partitionLine:
			return zktest.Fault{Lost: zktest.NoAnswer}
		}
	}
	heal := func(servers ...string) { time.AfterFunc(t.d, func() { a.heal(servers) }) }
	switch t.kind {
	case loseRequest:
		return zktest.Fault{Lost: zktest.RequestLost}
	case loseReply:
		return zktest.Fault{Lost: zktest.ReplyLost}
	case hang:
		return zktest.Fault{Lost: zktest.NoAnswer}
	case delay:
		return zktest.Fault{Delay: t.d}
	case disconnect:
		a.srv.Disconnect(r.Session)
	case expire:
		a.expire(r.Session)
	case partitionLine:
		a.srv.Partition(r.Session)
		heal(r.Server)
	case freezeServer:
		a.srv.Freeze(r.Server)
		heal(r.Server)
	case freezeBoth:
		a.srv.Freeze(c.servers...)
		heal(c.servers...)
	case isolateServer:
		a.isolate(r.Server)
		heal(r.Server)
	case isolateBoth:
		a.isolate(c.servers...)
		heal(c.servers...)
	case stopServer:
		a.stop(t.d, r.Server)
	case stopBoth:
		a.stop(t.d, c.servers...)
	case deleteOwn:
		if session, ok := a.srv.Session(r.Session); ok && len(session.Ephemerals) > 0 {
			a.remove(session.Ephemerals[0])
		}
	case deleteDir:
		for _, path := range a.znodes() {
			a.remove(path)
		}
	case reap:
		a.srv.Reap()
	}
	return zktest.Fault{}
}

func (a *arena) expire(id int64) {
	if session, ok := a.srv.Session(id); ok {
		a.referee.harm(id, session.Ephemerals...)
		a.srv.Expire(id)
	}
}

func (a *arena) remove(znode string) {
	a.referee.harm(0, znode)
	a.srv.Delete(znode)
}

// stop stops servers for a time. It also ends their isolation.
func (a *arena) stop(d time.Duration, servers ...string) {
	a.srv.Stop(servers...)
	a.referee.isolate(servers, false)
	time.AfterFunc(d, func() { _ = a.srv.Restart(servers...) }) // can't fail in a bubble
}

func (a *arena) isolate(servers ...string) {
	a.referee.isolate(servers, true)
	a.srv.Isolate(servers...)
}

func (a *arena) heal(servers []string) {
	a.referee.isolate(servers, false)
	a.srv.Heal(servers...) // asks the rule
}

func isWrite(op zktest.Op) bool {
	switch op {
	case zktest.OpCreate, zktest.OpCreate2, zktest.OpCreateContainer, zktest.OpDelete, zktest.OpSetData, zktest.OpMulti:
		return true
	default:
		return false
	}
}
