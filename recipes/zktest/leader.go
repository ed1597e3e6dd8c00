package zktest

import "time"

// SetSessionTimeouts changes the bounds of the session timeouts that some servers, or
// all if none is named, grant in handshakes from now on: what a rolling restart with
// other settings does. A session that is there keeps its timeout until its next
// handshake, which may then end it earlier than it would have ended. It panics on bounds
// that [WithSessionTimeouts] refuses.
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

// ElectLeader makes the running servers elect another leader: they drop their clients,
// a new epoch of zxids begins, and writes that wait for their commit are lost. Each session
// ends at the earliest one timeout from now, counted with the timeout with which the
// session was created, whatever was negotiated since: the others exist only in the memory
// of the old leader. Servers that are isolated notice nothing. It panics if no server
// runs.
func (s *Server) ElectLeader() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.running() {
		panic("zktest: ElectLeader while no server runs")
	}
	for _, m := range s.members {
		m.drop()
		m.unreport()
	}
	s.beginEpoch()
}

// beginEpoch is what a new leader begins with. Called under the lock.
func (s *Server) beginEpoch() {
	s.zxid = (s.epoch() + 1) << epochShift
	for _, n := range s.sessions {
		n.timeout = n.created
		s.extend(n)
	}
}

// epochShift is where the epoch begins in a zxid.
const epochShift = 32

// epoch is the number of the leader. Called under the lock.
func (s *Server) epoch() int64 { return s.zxid >> epochShift }
