package zktest

import (
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// Request is what a client sent. Of a Multi or a MultiRead, Path is that of its first part.
type Request struct {
	Time    time.Time // when it arrived
	Server  string    // which one got it
	Session int64     // 0 for the handshake of a new one
	Op      Op
	Path    string
}

// Loss is what gets lost of a request and its answer.
type Loss int

// A connection on which something is lost ends, as in a real network: there what
// follows a lost packet can't arrive either. AnswerLost is the exception.
const (
	NothingLost Loss = iota
	AnswerLost       // it is executed and not answered, and the connection goes on
	RequestLost      // it is not executed, and the connection ends
	ReplyLost        // it is executed, and the connection ends without an answer
	NoAnswer         // it is not executed, nothing behind it is answered, and nobody is told: a server that hangs
)

// Refusal is an error of the server's that a fault answers with.
type Refusal int32

// The refusals that clients have to live with. The server's own checks come first in
// a real one; a fault comes before them. There is no such answer to a handshake, a ping
// and the close of a session.
const (
	RefuseNoAuth          Refusal = proto.CodeNoAuth
	RefuseNoNode          Refusal = proto.CodeNoNode
	RefuseUnimplemented   Refusal = proto.CodeUnimplemented // without the closed connection
	RefuseTimeout         Refusal = proto.CodeOperationTimeout
	RefuseSessionExpired  Refusal = proto.CodeSessionExpired
	RefuseSessionMoved    Refusal = proto.CodeSessionMoved
	RefuseMarshallingFail Refusal = proto.CodeMarshallingError
)

// Fault is what happens to one request. The zero Fault is none.
type Fault struct {
	Delay   time.Duration // the answer comes that much later, and everything behind it
	Lost    Loss
	Refusal Refusal // answered instead of executing it; 0: none
}

// join takes the worse of two faults in each respect.
func (f Fault) join(g Fault) Fault {
	f.Delay = max(f.Delay, g.Delay)
	f.Lost = max(f.Lost, g.Lost)
	if f.Refusal == 0 {
		f.Refusal = g.Refusal
	}
	return f
}

// rule decides about requests.
type rule struct {
	decide func(Request) Fault
}

// Inject asks rule about every request from now on, before it is executed; where
// several rules have something to say, the worst of each counts. Requests of one
// connection come one at a time and in order, those of several at once. The rule runs
// under no lock and may call any method but Close: what it does happens before the
// request. It may also take its time: the request waits for it, and what is behind that
// on the connection. Remove takes the rule out again, without waiting for what it is at.
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

// examine asks the rules.
func examine(rules []*rule, r Request) (f Fault) {
	for _, rule := range rules {
		f = f.join(rule.decide(r))
	}
	return f
}
