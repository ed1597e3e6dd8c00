package zktest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// Expire ends a session at once, as if its time were over: its connection is cut (but
// not while that is silent), its ephemeral znodes are gone when Expire returns, and its
// client learns of it at the next handshake. A session that has ended stays so. The id of
// a client without a session is 0: that panics, as any id that the server never gave out.
func (s *Server) Expire(session int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkSessionsLocked([]int64{session})
	if n := s.sessions[session]; n != nil {
		s.end(n)
	}
}

// ExpireAll ends every session, the oldest first, as [Server.Expire] does.
func (s *Server) ExpireAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(s.sessions)) {
		s.end(s.sessions[id])
	}
}

// checkSessionsLocked panics if one of ids was never a session's: a test must not pass
// because its fault hits nobody.
func (s *Server) checkSessionsLocked(ids []int64) {
	for _, id := range ids {
		switch {
		case id == 0:
			panic("zktest: session 0: the client has no session yet; ExpireAll, or a fault without ids, concerns all")
		case id <= firstID || id > s.lastID:
			panic(fmt.Sprintf("zktest: session %#x: this server has opened no such session", id))
		}
	}
}

func (s *Server) checkSessions(ids []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkSessionsLocked(ids)
}

// Disconnect cuts the connections of some sessions, or all connections if none is
// named. The sessions live on, and clients may come back at once.
func (s *Server) Disconnect(sessions ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkSessionsLocked(sessions)
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

// Freeze pauses some servers, or all if none is named: their connections are silent,
// new ones are accepted and get no answer. The sessions go on to age.
func (s *Server) Freeze(servers ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.namedLocked(servers) {
		m.frozen = true
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
	for _, m := range s.namedLocked(servers) {
		if !m.isolated() {
			m.view, m.seen = s.tree.copy(), s.zxid
			m.unreport()
		}
	}
}

// Heal ends every Partition and PartitionFrom, and the Freeze, Isolate and KeepShowing of
// some servers, or of all if none is named. Servers that were isolated, or have shown what
// is gone, drop their clients.
func (s *Server) Heal(servers ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut.heal(nil)
	for _, m := range s.members {
		m.cut.heal(nil)
	}
	for _, m := range s.namedLocked(servers) {
		wrong := m.isolated() || m.ghosts != nil
		if m.frozen {
			m.report()
		}
		m.frozen, m.view, m.ghosts = false, nil, nil
		if wrong {
			m.drop()
		}
	}
	s.resumeLocked()
}

// Stop stops some servers, or all if none is named: connections end, new ones are
// refused. While every server is stopped, no session ages.
func (s *Server) Stop(servers ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.namedLocked(servers) {
		m.stopped, m.frozen, m.view, m.ghosts = true, false, nil, nil
		m.unlisten()
		m.drop()
	}
}

// Restart starts servers that were stopped, or all if none is named, on their old
// addresses and with everything that was in ZooKeeper. If none was running, they have a
// new leader: see [Server.ElectLeader]. It starts those that it
// can, and returns an error for those whose address somebody else has taken since.
func (s *Server) Restart(servers ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	idle := !s.running()
	var failed error
	for _, m := range s.namedLocked(servers) {
		if m.stopped && !s.closed {
			failed = errors.Join(failed, m.restart())
		}
	}
	if idle && s.running() {
		s.beginEpoch()
	}
	return failed
}

// namedLocked are the servers with these addresses, or all if there are none. It panics
// if one is nobody's.
func (s *Server) namedLocked(addresses []string) []*member {
	for _, address := range addresses {
		if !slices.ContainsFunc(s.members, func(m *member) bool { return m.address == address }) {
			panic(fmt.Sprintf("zktest: no server has the address %q; see Addrs", address))
		}
	}
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

// DropAnswer loses the answers to the next n requests of an operation, from some sessions
// or from any if none is named, and nothing else: each request is executed, the connection
// stays, and what is behind it is answered. No network does that; a client, a proxy or a
// server with a fault does. Remove calls off what has not happened yet.
func (s *Server) DropAnswer(op Op, n int, sessions ...int64) (remove func()) {
	return s.next(op, n, sessions, Fault{Lost: AnswerLost})
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
	s.checkSessions(sessions)
	return s.Inject(func(r Request) Fault {
		if op.matches(r) && concerns(sessions, r.Session) {
			return Fault{Delay: by}
		}
		return Fault{}
	})
}

// next makes a fault of the next n requests that match.
func (s *Server) next(op Op, n int, sessions []int64, f Fault) (remove func()) {
	s.checkSessions(sessions)
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
