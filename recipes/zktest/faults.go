package zktest

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Expire ends a session at once, as if its timeout had run out: its connection is cut (but not while the connection
// is silent), its ephemeral znodes are deleted when Expire returns, and its client is notified at the next handshake.
// Expiring an ended session has no effect. Expire panics on an id that the server never assigned, such as 0, the id
// of a client without a session.
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

// checkSessionsLocked panics if the server never assigned one of the ids, because a test must not pass when its fault
// has no target.
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

// checkAliveLocked also panics if one of the sessions is over, because a fault in its future requests would have no
// target.
func (s *Server) checkAliveLocked(ids []int64) {
	s.checkSessionsLocked(ids)
	for _, id := range ids {
		if s.sessions[id] == nil {
			panic(fmt.Sprintf("zktest: session %#x: the session has ended, and sends no requests any more", id))
		}
	}
}

func (s *Server) checkAlive(ids []int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkAliveLocked(ids)
}

// Disconnect cuts the connections of the given sessions, or all connections if no session
// is given. The sessions live on, and clients may reconnect at once.
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

// concerns reports whether sessions contains id or is empty, which means all sessions.
func concerns(sessions []int64, id int64) bool {
	return len(sessions) == 0 || slices.Contains(sessions, id)
}

// Freeze pauses the given servers, or all servers if none is given: existing connections
// are silent, and new connections are accepted but get no answer. Sessions continue to
// age.
func (s *Server) Freeze(servers ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.namedLocked(servers) {
		m.frozen = true
	}
	s.changed.Broadcast()
}

// Isolate cuts off the given servers, or all servers if none is given, from a quorum that carries on without them. An
// isolated server answers pings, reads and sync from the data it had at that moment, and never answers a write or a
// handshake. The quorum hears nothing from the clients of an isolated server. A real server behaves like this for
// seconds before it notices the loss.
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

// KeepShowing makes the given servers, or all servers if none is given, continue to show
// a znode as it is now, even after its deletion: they return and list the znode, and send
// no event for its deletion. Nothing else changes: writes go to the quorum, which does
// see the deletion. Real servers have done this after losing a transaction, until their
// next restart. [Server.Heal] and Stop end the effect; the servers then drop their
// clients. KeepShowing panics if the znode does not exist.
func (s *Server) KeepShowing(path string, servers ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.namedLocked(servers) {
		n := m.find(path)
		if n == nil {
			panic(fmt.Sprintf("zktest: no znode %q to keep showing", path))
		}
		if m.ghosts == nil {
			m.ghosts = map[string]*node{}
		}
		image := *n
		image.children = nil
		m.ghosts[path] = &image
	}
}

// Partition silences the network, in both directions and without a reset, between the servers and the given sessions,
// or all clients if none is given, on their existing and future connections. Requests sent into the silence arrive
// after [Server.Heal], even if the client closes the connection before.
func (s *Server) Partition(sessions ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut.addLocked(s, sessions)
}

// PartitionFrom does the same as [Server.Partition], but only on the way to one server. An affected session may
// continue on another server.
func (s *Server) PartitionFrom(server string, sessions ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.namedLocked([]string{server})[0].cut.addLocked(s, sessions)
}

// cut lists the clients that are cut off. The server's lock guards it.
type cut struct {
	everybody bool
	sessions  map[int64]bool
}

func (c *cut) concerns(session int64) bool { return c.everybody || c.sessions[session] }

func (c *cut) addLocked(s *Server, sessions []int64) {
	s.checkSessionsLocked(sessions)
	c.everybody = c.everybody || len(sessions) == 0
	for _, id := range sessions {
		if c.sessions == nil {
			c.sessions = map[int64]bool{}
		}
		c.sessions[id] = true
	}
	s.changed.Broadcast()
}

// heal reconnects the given sessions, or all clients if none is given.
func (c *cut) heal(sessions []int64) {
	if len(sessions) == 0 {
		*c = cut{}
	}
	for _, id := range sessions {
		delete(c.sessions, id)
	}
}

// Heal ends every Partition and PartitionFrom, and the Freeze, Isolate and KeepShowing of
// the given servers, or of all servers if none is given. Servers that were isolated, or
// have shown deleted znodes, drop their clients.
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

// HealSessions undoes [Server.Partition] and [Server.PartitionFrom] for the given
// sessions, or for all clients if none is given; frozen and isolated servers stay so. It
// panics if a given session is silent because all clients are.
func (s *Server) HealSessions(sessions ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkSessionsLocked(sessions)
	cuts := []*cut{&s.cut}
	for _, m := range s.members {
		cuts = append(cuts, &m.cut)
	}
	for _, c := range cuts {
		if len(sessions) > 0 && c.everybody {
			panic("zktest: HealSessions of one while everybody is cut off: Heal, or name the sessions in Partition")
		}
	}
	for _, c := range cuts {
		c.heal(sessions)
	}
	s.resumeLocked()
}

// resumeLocked resumes connections whose silence is over.
func (s *Server) resumeLocked() {
	for l := range s.lines {
		for _, a := range l.inbox {
			l.reach(a)
		}
		l.wake()
	}
	s.changed.Broadcast()
}

// Stop stops the given servers, or all servers if none is given: connections end, and new connections are refused. If
// no majority is left running, the ensemble loses its quorum, and the other servers drop their clients, and answer
// every handshake by hanging up, as real servers do while they have no leader. No session ages until [Server.Restart]
// restores the majority. Of two servers, both are needed. Frozen and isolated servers count as running.
func (s *Server) Stop(servers ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.namedLocked(servers) {
		m.stopped, m.frozen, m.view, m.ghosts = true, false, nil, nil
		m.unreport()
		m.unlisten()
		m.drop()
	}
	if s.hasQuorum() {
		return
	}
	for _, m := range s.members {
		m.drop()
	}
}

// Restart starts the given servers if they are stopped, or all stopped servers if none is given, on their old addresses
// and with all data and sessions. If this restores the quorum, the ensemble gets a new leader (see
// [Server.ElectLeader]). Restart starts as many servers as it can, and returns an error for those whose address is in
// use by another process.
func (s *Server) Restart(servers ...string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	hadQuorum := s.hasQuorum()
	var failed error
	for _, m := range s.namedLocked(servers) {
		if m.stopped && !s.closed {
			failed = errors.Join(failed, m.restart())
		}
	}
	if !hadQuorum && s.hasQuorum() {
		s.beginEpoch()
	}
	return failed
}

// ElectLeader makes the running servers elect another leader: they drop their clients, a new epoch of zxids begins, and
// writes that wait for their commit are lost. The expiry of each session is set to one timeout from now, counted with
// the timeout granted when the session was created, because later timeouts exist only in the memory of the old leader.
// Isolated servers notice nothing. ElectLeader panics without a quorum (see Stop).
func (s *Server) ElectLeader() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hasQuorum() {
		panic(fmt.Sprintf("zktest: ElectLeader while %d of %d servers run: no quorum", s.running(), len(s.members)))
	}
	for _, m := range s.members {
		m.drop()
		m.unreport()
	}
	s.beginEpoch()
}

// SetSessionTimeouts changes the bounds of the session timeouts that the given servers, or all servers if none is
// given, grant in handshakes from now on, as a rolling restart with other settings does. An existing session keeps
// its timeout until its next handshake, which may bring its end forward. With [WithTouchInterval], a server reports
// its active sessions with the timeouts that it granted, also a session that moved to another server since.
// SetSessionTimeouts panics on bounds that [WithSessionTimeouts] refuses.
func (s *Server) SetSessionTimeouts(shortest, longest time.Duration, servers ...string) {
	if err := checkTimeouts(shortest, longest); err != nil {
		panic(err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range s.namedLocked(servers) {
		m.minTimeout, m.maxTimeout = shortest, longest
	}
}

// namedLocked returns the servers with the given addresses, or all servers if addresses
// is empty. It panics if no server has one of the addresses.
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

// pace holds the delays and rates of slow servers. The server's lock guards it.
type pace struct {
	commit    time.Duration
	handshake time.Duration
	bandwidth int           // bytes per second; 0 for no limit
	limits    map[int64]int // the same for single sessions
}

// SlowCommits makes the quorum slow, until SlowCommits(0). A write, a sync or the handshake of a new session is
// executed and answered d after its arrival, and all later requests on the connection, including pings, wait behind it.
// No client sees a write before its commit. Writes overlap: of two writes that arrive together, both are answered after
// d. Other connections are not delayed, nor is the handshake of an existing session.
//
// A write that arrived is committed even if its connection ends first and its session moves to another connection,
// and no later write of the session overtakes it. The write is lost if the session is over by then, or if another
// leader is elected. A change of d affects requests that arrive later.
func (s *Server) SlowCommits(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace.commit = d
}

// SlowHandshakes makes every handshake slow, until SlowHandshakes(0). The server accepts the connection and renews the
// session at once, but answers d after the handshake's arrival.
func (s *Server) SlowHandshakes(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace.handshake = d
}

// SetClock sets how far the leader's clock is ahead of this machine's, or behind it if
// ahead is negative. From then on all ctimes, mtimes and ages of znodes are by that clock.
// A change stands for the election of a leader whose clock differs. Sessions are not
// affected: servers measure them by a clock that never jumps.
func (s *Server) SetClock(ahead time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead = ahead
}

// SetBandwidth limits the rate at which the server sends on each connection of the given sessions, or on each
// connection if no session is given. An answer arrives in small pieces every 10 ms. A rate of 0 removes the limit;
// without a session, 0 removes all limits. Data from clients is not limited.
func (s *Server) SetBandwidth(bytesPerSecond int, sessions ...int64) {
	if bytesPerSecond < 0 {
		panic(fmt.Sprintf("zktest: bandwidth of %d bytes per second", bytesPerSecond))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checkSessionsLocked(sessions)
	if len(sessions) == 0 {
		s.pace.bandwidth, s.pace.limits = bytesPerSecond, nil
		return
	}
	if s.pace.limits == nil {
		s.pace.limits = map[int64]int{}
	}
	for _, id := range sessions {
		s.pace.limits[id] = bytesPerSecond
	}
}
