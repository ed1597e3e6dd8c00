package session

import (
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

const (
	lengthField = 4 // of a path in a transaction
	uuidLength  = 36
	leastBytes  = len("/"+Protection) + uuidLength + len("-") + zkutil.NumberDigits + lengthField
)

// BytesOf is what an ephemeral-sequential znode of ours costs the budget: the length of its path, and four
// bytes that say how long it is.
func BytesOf(dir, prefix string) int {
	return len(zkutil.Join(dir, Protection)) + uuidLength + len("-") + len(prefix) + zkutil.NumberDigits + lengthField
}

// charge is what one znode costs that may exist. It has one owner: the create until that is answered, then
// the task that looks for the znode, or the path in budget.nodes.
type charge struct {
	place *Place // nil once the charge has ended
	bytes int
	path  string // in budget.nodes; "" while the path is not known
}

// begin takes bytes from the place for a znode. A place that has been used before may lack them, because the
// deletion of an earlier znode is not confirmed: unless the session has enough left, the contender has to try
// again.
func (p *Place) begin(bytes int) (*charge, error) {
	b := p.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if missing := bytes - p.bytes; missing > 0 {
		if !b.fitsLocked(missing) {
			return nil, zkutil.ContenderLost(b.fullError())
		}
		b.addLocked(p.room, missing)
		p.bytes += missing
		b.noteChangeLocked(p.room)
	}
	p.bytes -= bytes
	c := &p.first
	if c.place != nil {
		c = new(charge)
	}
	c.place, c.bytes = p, bytes
	return c, nil
}

// settle leaves the charge to the path of its znode: it ends with budget.gone, or with the session.
func (c *charge) settle(path string) {
	b := c.place.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if more := len(path) + lengthField - c.bytes; more > 0 { // a number that is negative, for example
		b.addLocked(c.place.room, more)
		c.bytes += more
		b.noteChangeLocked(c.place.room)
	}
	c.path = path
	b.nodes[path] = c
}

// end ends the charge of a znode that does not exist.
func (c *charge) end() {
	b := c.place.b
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endLocked(c)
}

// endLocked gives the bytes of a charge back, to its place if that may still need them.
func (b *budget) endLocked(c *charge) {
	p, bytes := c.place, c.bytes
	if c.path != "" {
		delete(b.nodes, c.path)
	}
	*c = charge{}
	if p.isOver {
		b.freeLocked(p.room, bytes)
	} else {
		p.bytes += bytes
	}
}

// gone notes that there is no znode at path.
func (b *budget) gone(path string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.nodes[path]; c != nil {
		b.endLocked(c)
	}
}

// addTwin charges a second znode of one create, which nobody has asked for. It counts even if that crosses the
// limit: then there are no places until it is gone.
func (b *budget) addTwin(path, twin string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.nodes[path]
	if c == nil || b.nodes[twin] != nil {
		return
	}
	bytes := len(twin) + lengthField
	b.addLocked(c.place.room, bytes)
	b.nodes[twin] = &charge{c.place, bytes, twin}
	b.noteChangeLocked(c.place.room)
}

// endSession ends the charges of all znodes whose paths are known, because the servers have deleted them with
// the session. Creates that are not answered go on counting.
func (b *budget) endSession() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.nodes {
		b.endLocked(c)
	}
}

// settleCreated leaves the charge of a create to the znode that it has made.
func (s *Session) settleCreated(c *charge, created wire.Answer) {
	s.mu.Lock() // so that the session does not end in between
	defer s.mu.Unlock()
	if owner := created.Stat.EphemeralOwner; owner != 0 && owner != s.link.id {
		c.end()
		return
	}
	c.settle(created.Path)
}

// ForgetNode notes that a znode of ours is known to be gone, before its deletion is confirmed.
func (s *Session) ForgetNode(path string) { s.budget.gone(path) }
