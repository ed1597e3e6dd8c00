package budget

import (
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

const (
	// LengthField is the cost of a znode besides its path: a transaction stores the length of each path.
	LengthField = 4

	uuidLength = 36
	leastBytes = len("/") + uuidLength + zkutil.NumberDigits + LengthField // every name has a uuid and a number
)

// Charge is the cost of a znode that may exist. A charge has a single owner: first the create, until the server has
// answered; then the task looking for the znode, or the path in Budget.nodes.
type Charge struct {
	reservation *Reservation // nil once the charge has ended
	bytes       int
	path        string // in Budget.nodes; "" while unknown
}

// Begin takes bytes for a znode from the reservation. After an earlier znode whose deletion is not confirmed, the
// reservation may lack bytes. If the budget can't add the missing bytes, the error is an ErrContenderLost, and the
// contender has to try again.
func (r *Reservation) Begin(bytes int) (*Charge, error) {
	b := r.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if missing := bytes - r.bytes; missing > 0 {
		if !b.fitsLocked(missing) {
			return nil, zkutil.ContenderLost(b.fullError())
		}
		b.addLocked(r.directory, missing)
		r.bytes += missing
		b.updateLocked(r.directory)
	}
	r.bytes -= bytes
	c := &r.first
	if c.reservation != nil {
		c = new(Charge)
	}
	c.reservation, c.bytes = r, bytes
	return c, nil
}

// Settle binds the charge to the path of its znode: Budget.Free, or the end of the session, ends the charge.
func (c *Charge) Settle(path string) {
	b := c.reservation.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if more := len(path) + LengthField - c.bytes; more > 0 { // for example because the number is negative
		b.addLocked(c.reservation.directory, more)
		c.bytes += more
		b.updateLocked(c.reservation.directory)
	}
	c.path = path
	b.nodes[path] = c
}

// End ends the charge of a znode that does not exist.
func (c *Charge) End() {
	b := c.reservation.b
	b.mu.Lock()
	defer b.mu.Unlock()
	b.endLocked(c)
}

// endLocked returns the bytes of a charge, to its reservation if the call is not over.
func (b *Budget) endLocked(c *Charge) {
	r, bytes := c.reservation, c.bytes
	if c.path != "" {
		delete(b.nodes, c.path)
	}
	*c = Charge{}
	if r.isOver {
		b.freeLocked(r.directory, bytes)
	} else {
		r.bytes += bytes
	}
}

// Free ends the charge of the znode at path, which has gone.
func (b *Budget) Free(path string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.nodes[path]; c != nil {
		b.endLocked(c)
	}
}

// AddTwin charges a second znode of a create. The twin counts even beyond the limit: then the budget grants no
// reservation until the twin has gone.
func (b *Budget) AddTwin(path, twin string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.nodes[path]
	if c == nil || b.nodes[twin] != nil {
		return
	}
	bytes := len(twin) + LengthField
	b.addLocked(c.reservation.directory, bytes)
	b.nodes[twin] = &Charge{c.reservation, bytes, twin}
	b.updateLocked(c.reservation.directory)
}

// EndSession ends the charges of all znodes with known paths, because the servers have deleted these znodes with the
// session. Unanswered creates still count.
func (b *Budget) EndSession() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.nodes {
		b.endLocked(c)
	}
}
