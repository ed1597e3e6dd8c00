package faultproxy

import (
	"net"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// xidConnect stands for the number that a handshake does not have; clients count from 1 and servers use -1, -2, -4, -8.
const xidConnect = 0

// writeUp forwards requests until the client has hung up or the link is cut.
func (l *link) writeUp(server net.Conn, queue <-chan frame) {
	first := true
	for f := range queue {
		if !l.ready(f, &l.proxy.up) {
			return
		}
		request := Request{Op: opConnect, Xid: xidConnect}
		if !first {
			request = parseRequest(f.body())
		}
		first = false
		request.Time, request.Conn, request.Session = f.read, l.number, l.sessionID()
		l.proxy.tally.request(request)

		waiting, ok := l.applyRequest(request)
		if !ok || !l.proxy.up.pass(l.done) {
			for _, rule := range waiting {
				rule.giveBack()
			}
			return
		}
		l.expect(&exchange{request: request, rules: waiting})
		n, err := server.Write(f.bytes)
		l.proxy.tally.up(n)
		if err != nil {
			return
		}
	}
}

// applyRequest runs the hooks and the rules about requests, and returns those that wait for the reply. It returns false
// if the request was dropped together with the link.
func (l *link) applyRequest(request Request) ([]*Rule, bool) {
	var waiting []*Rule
	for _, rule := range append(l.proxy.hooks.all(), l.proxy.rules.all()...) {
		if !rule.take(request) {
			continue
		}
		if rule.onReply != nil {
			waiting = append(waiting, rule)
			continue
		}
		if rule.onRequest(request, l.done) == drop {
			rule.hit()
			l.cut()
			rule.settle()
			return waiting, false
		}
		rule.hit()
		rule.settle()
	}
	return waiting, true
}

// writeDown forwards replies until the server hangs up or the link is cut. A client that stops reading does not end
// it, because that client's earlier requests must still reach the server.
func (l *link) writeDown(queue <-chan frame) {
	first, listening := true, true
	for f := range queue {
		if !l.ready(f, &l.proxy.down) {
			return
		}
		d := proto.NewDecoder(f.body())
		xid := d.Int32()
		reply := Reply{Zxid: d.Int64(), Err: d.Int32()}
		if first {
			xid, reply = xidConnect, Reply{}
			l.setSession(sessionOf(f.body()))
		}
		first = false
		if xid == proto.XidEvent {
			l.proxy.tally.event()
		} else if e := l.answered(xid); e != nil && !l.applyReply(e, reply) {
			return
		}
		if !l.proxy.down.pass(l.done) {
			return
		}
		if listening {
			n, err := l.client.Write(f.bytes)
			l.proxy.tally.down(n)
			listening = err == nil
		}
	}
}

// applyReply runs the rules that wait for this reply. It returns false if the reply was dropped together with the link.
func (l *link) applyReply(e *exchange, reply Reply) bool {
	for i, rule := range e.rules {
		if rule.onReply(e.request, reply, l.done) == drop {
			rule.hit()
			l.cut()
			rule.settle()
			for _, later := range e.rules[i+1:] {
				later.giveBack()
			}
			return false
		}
		rule.hit()
		rule.settle()
	}
	return true
}
