package zktest

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// Request is a client's request. For a Multi or a MultiRead, Path is the path of the
// first part.
type Request struct {
	Time    time.Time // time of arrival
	Server  string    // address of the server that received the request
	Session int64     // 0 for the handshake of a new session
	Op      Op
	Path    string
}

// Loss says which part of a request and its answer gets lost.
type Loss int

// After a loss the connection ends, as in a real network, where nothing that follows a
// lost packet can arrive either. AnswerLost and NoAnswer are the exceptions.
const (
	NothingLost Loss = iota
	AnswerLost       // the request is executed but not answered, and the connection stays open
	RequestLost      // the request is not executed, and the connection ends
	ReplyLost        // the request is executed, and the connection ends without an answer
	NoAnswer         // the request is not executed, and neither it nor any later request is answered, as by a hung server
)

// Refusal is a server error with which a fault answers a request.
type Refusal int32

// The refusals that clients have to handle. A real server makes its own checks first; a fault precedes the checks.
// Handshakes, pings and the close of a session can't be refused like this.
const (
	RefuseNoAuth          Refusal = proto.CodeNoAuth
	RefuseNoNode          Refusal = proto.CodeNoNode
	RefuseUnimplemented   Refusal = proto.CodeUnimplemented // without closing the connection
	RefuseTimeout         Refusal = proto.CodeOperationTimeout
	RefuseSessionExpired  Refusal = proto.CodeSessionExpired
	RefuseSessionMoved    Refusal = proto.CodeSessionMoved
	RefuseMarshallingFail Refusal = proto.CodeMarshallingError
)

// Fault is the treatment of one request. The zero Fault changes nothing.
type Fault struct {
	Delay   time.Duration // delays this answer and all later ones
	Lost    Loss
	Refusal Refusal // answered instead of executing the request; 0: none
}

// join returns the worse of two faults in each field.
func (f Fault) join(g Fault) Fault {
	f.Delay = max(f.Delay, g.Delay)
	f.Lost = max(f.Lost, g.Lost)
	if f.Refusal == 0 {
		f.Refusal = g.Refusal
	}
	return f
}

// rule decides the fault of each request.
type rule struct {
	decide func(Request) Fault
}

// Inject calls decide for every request from now on, before the request is executed; if several rules return a fault,
// the worst value of each field counts. Calls for requests of one connection are sequential and in order; calls for
// several connections are concurrent. The rule runs without any lock held and may call any method but Close. The
// effects of such a call precede the request. The rule may also block. Then the request waits, and so do all later
// requests on the connection. Remove removes the rule, without waiting for a running call.
func (s *Server) Inject(decide func(Request) Fault) (remove func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	added := &rule{decide}
	s.rules = append(slices.Clip(s.rules), added)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.rules = slices.DeleteFunc(slices.Clone(s.rules), func(r *rule) bool { return r == added })
	}
}

// examine joins the faults that the rules decide.
func examine(rules []*rule, r Request) (f Fault) {
	for _, rule := range rules {
		f = f.join(rule.decide(r))
	}
	return f
}

// DropReply loses the answers to the next n requests of an operation, from the given
// sessions or from any session if none is given: each request is executed, and the
// connection ends instead of an answer. Remove cancels the losses still outstanding.
func (s *Server) DropReply(op Op, n int, sessions ...int64) (remove func()) {
	return s.next(op, n, sessions, Fault{Lost: ReplyLost})
}

// DropAnswer loses the answers to the next n requests of an operation, from the given
// sessions or from any session if none is given, and nothing else: each request is
// executed, the connection stays open, and later requests are answered. No network loses
// answers like this, but a faulty client, proxy or server does. Remove cancels the losses
// still outstanding.
func (s *Server) DropAnswer(op Op, n int, sessions ...int64) (remove func()) {
	return s.next(op, n, sessions, Fault{Lost: AnswerLost})
}

// DropRequest loses the next n requests of an operation, from the given sessions or from any session if none is given.
// The requests are not executed, and the connection ends. Remove cancels the losses still outstanding.
func (s *Server) DropRequest(op Op, n int, sessions ...int64) (remove func()) {
	return s.next(op, n, sessions, Fault{Lost: RequestLost})
}

// next injects f into the next n requests that match.
func (s *Server) next(op Op, n int, sessions []int64, f Fault) (remove func()) {
	op.check()
	s.checkAlive(sessions)
	var mu sync.Mutex // protects n, and remove until it is set
	mu.Lock()
	defer mu.Unlock()
	remove = s.Inject(func(r Request) Fault {
		if !op.matches(r) || !concerns(sessions, r.Session) {
			return Fault{}
		}
		mu.Lock()
		defer mu.Unlock()
		n--
		if n <= 0 {
			remove()
		}
		if n < 0 { // concurrent requests were first
			return Fault{}
		}
		return f
	})
	return remove
}

// Delay holds back the answer to every request of an operation, from the given sessions
// or from any session if none is given, and all later answers on the same connection.
func (s *Server) Delay(op Op, by time.Duration, sessions ...int64) (remove func()) {
	op.check()
	s.checkAlive(sessions)
	return s.Inject(func(r Request) Fault {
		if op.matches(r) && concerns(sessions, r.Session) {
			return Fault{Delay: by}
		}
		return Fault{}
	})
}

// DropEvent loses the next n watch events to the given sessions, or to any session if none is given. The watch is used
// up, its client is not notified, and the connection stays open. Remove cancels the losses still outstanding. To lose
// all events until remove is called, pass math.MaxInt.
func (s *Server) DropEvent(n int, sessions ...int64) (remove func()) {
	if n < 1 {
		panic(fmt.Sprintf("zktest: DropEvent of %d events", n))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkAliveLocked(sessions)
	loss := &eventLoss{left: n, sessions: slices.Clone(sessions)}
	s.losses = append(s.losses, loss)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.losses = slices.DeleteFunc(s.losses, func(other *eventLoss) bool { return other == loss })
	}
}

// eventLoss counts the events still to be lost, and names the sessions that lose them.
type eventLoss struct {
	left     int
	sessions []int64
}

// eventLosses holds the outstanding losses. The server's lock guards it.
type eventLosses []*eventLoss

// lose reports whether the next event to a session is lost, and counts the loss.
func (e eventLosses) lose(session int64) bool {
	for _, loss := range e {
		if loss.left > 0 && concerns(loss.sessions, session) {
			loss.left--
			return true
		}
	}
	return false
}
