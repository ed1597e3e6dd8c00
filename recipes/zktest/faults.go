package zktest

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"
)

// Expire ends a session at once, as if its time were over: its connection is cut (but
// not while that is silent), its ephemeral znodes are gone when Expire returns, and its
// client learns of it at the next handshake. 0 means every session.
func (s *Server) Expire(session int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) { // the oldest first
		if session == 0 || id == session {
			s.end(s.sessions[id])
		}
	}
}

// Disconnect cuts the connections of some sessions, or all connections if none is
// named. The sessions live on, and clients may come back at once.
func (s *Server) Disconnect(sessions ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.lines {
		if concerns(sessions, l.claims) {
			l.close()
		}
	}
}

// concerns tells whether a session is one of those named; naming none means all.
func concerns(sessions []int64, id int64) bool {
	return len(sessions) == 0 || slices.Contains(sessions, id)
}

// Partition makes the line silent, in both directions and without a reset, between the
// servers and some sessions, or everybody if none is named: on their connections and on
// those that they make. What is sent into the silence arrives after [Server.Heal],
// even if the client has closed its connection since.
func (s *Server) Partition(sessions ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutAll = s.cutAll || len(sessions) == 0
	for _, id := range sessions {
		s.cut[id] = true
	}
	s.changed.Broadcast()
}

// Freeze pauses some servers, or all if none is named: their connections are silent,
// new ones are accepted and get no answer. The sessions go on to age.
func (s *Server) Freeze(servers ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.named(servers) {
		m.frozen = true
		m.unreport()
	}
	s.changed.Broadcast()
}

// Isolate cuts some servers, or all if none is named, off from a quorum that goes on
// without them: they answer pings, reads and sync from what they knew at that moment,
// and never answer a write or a handshake. To the others their clients have fallen
// silent. A real server does so for seconds before it notices.
func (s *Server) Isolate(servers ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.named(servers) {
		if !m.isolated() {
			m.view, m.seen = s.tree.copy(), s.zxid
			m.unreport()
		}
	}
}

// Heal ends every Partition, and the Freeze and Isolate of some servers, or of all if
// none is named. Servers that were isolated drop their clients.
func (s *Server) Heal(servers ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutAll = false
	clear(s.cut)
	for _, m := range s.named(servers) {
		apart := m.isolated()
		m.frozen, m.view = false, nil
		if apart {
			m.drop()
		}
	}
	for l := range s.lines {
		l.wake()
	}
	s.changed.Broadcast()
}

// Stop stops some servers, or all if none is named: connections end, new ones are
// refused. While every server is stopped, no session ages.
func (s *Server) Stop(servers ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.named(servers) {
		m.stopped, m.frozen, m.view = true, false, nil
		m.unlisten()
		m.drop()
	}
}

// Restart starts servers that were stopped, or all if none is named, on their old
// addresses and with everything that was in ZooKeeper. If none was running, each
// session gets its whole timeout again, as from a new leader. It starts those that it
// can, and returns an error for those whose address somebody else has taken since.
func (s *Server) Restart(servers ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	idle := !s.running()
	var failed error
	for _, m := range s.named(servers) {
		if m.stopped && !s.closed {
			failed = errors.Join(failed, m.restart())
		}
	}
	if idle && s.running() {
		const epoch = 32
		s.zxid = (s.zxid>>epoch + 1) << epoch
		for _, n := range s.sessions {
			s.extend(n)
		}
	}
	return failed
}

// named are the servers with these addresses. Called under the lock.
func (s *Server) named(addresses []string) []*member {
	return slices.DeleteFunc(slices.Clone(s.members), func(m *member) bool {
		return len(addresses) > 0 && !slices.Contains(addresses, m.address)
	})
}

// DropReply loses the answers to the next n requests of an operation, from some
// sessions or from any if none is named: each request is executed, and the connection
// ends instead of an answer. Remove calls off what has not happened yet.
func (s *Server) DropReply(op Op, n int, sessions ...int64) (remove func()) {
	return s.next(op, n, sessions, Fault{Lost: ReplyLost})
}

// DropRequest loses the next n requests of an operation, from some sessions or from
// any if none is named: they are not executed, and the connection ends. Remove calls off
// what has not happened yet.
func (s *Server) DropRequest(op Op, n int, sessions ...int64) (remove func()) {
	return s.next(op, n, sessions, Fault{Lost: RequestLost})
}

// Delay holds back the answer to every request of an operation, from some sessions or
// from any if none is named, and with it everything behind it on that connection.
func (s *Server) Delay(op Op, by time.Duration, sessions ...int64) (remove func()) {
	return s.Inject(func(r Request) Fault {
		if op.matches(r) && concerns(sessions, r.Session) {
			return Fault{Delay: by}
		}
		return Fault{}
	})
}

// next makes a fault of the next n requests that match.
func (s *Server) next(op Op, n int, sessions []int64, f Fault) (remove func()) {
	var mu sync.Mutex // of n, and of remove as long as it is not there
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
		if n < 0 { // others were first
			return Fault{}
		}
		return f
	})
	return remove
}
