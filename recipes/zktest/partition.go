package zktest

// Partition makes the line silent, in both directions and without a reset, between the
// servers and some sessions, or everybody if none is named: on their connections and on
// those that they make. What is sent into the silence arrives after [Server.Heal],
// even if the client has closed its connection since.
func (s *Server) Partition(sessions ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut.addLocked(s, sessions)
}

// PartitionFrom does what [Server.Partition] does, on the way to one server only: a
// session that is cut from it may go on with another.
func (s *Server) PartitionFrom(server string, sessions ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.namedLocked([]string{server})[0].cut.addLocked(s, sessions)
}

// HealSessions ends what [Server.Partition] and [Server.PartitionFrom] have done to some
// sessions, or to all and everybody if none is named; frozen and isolated servers stay so.
// It panics if a named session is silent because everybody is.
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

// cut says who is cut off. The server's lock guards it.
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

// heal ends it for some sessions, or all and everybody if none is named.
func (c *cut) heal(sessions []int64) {
	if len(sessions) == 0 {
		*c = cut{}
	}
	for _, id := range sessions {
		delete(c.sessions, id)
	}
}

// resumeLocked lets what has waited in a silence go on.
func (s *Server) resumeLocked() {
	for l := range s.lines {
		for _, a := range l.inbox {
			l.reach(a)
		}
		l.wake()
	}
	s.changed.Broadcast()
}
