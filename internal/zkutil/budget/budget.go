package budget

import (
	"container/list"
	"context"
	"fmt"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

const (
	// DefaultMaxBytes is half of the longest frame a server accepts by default (jute.maxbuffer).
	DefaultMaxBytes = 512 << 10
	// MaxContenders bounds how many contenders of a session may wait in a directory at a time.
	MaxContenders = 500
)

// Budget bounds the ephemeral znodes of a session. To close a session, the servers write the paths of all its ephemeral
// znodes into one transaction, and they can't read a transaction longer than a frame (ZOOKEEPER-4306). A znode counts
// from the moment before its create is sent until the znode is known to be deleted, or its session to be over.
//
// A call makes a [Reservation] before it creates a znode. A directory grants reservations in the order of the requests.
// Requests that had to wait are granted one by one, each after the create of the previous one is sent, and so the server
// numbers the znodes in the order of the requests. In a directory with bytes of the budget, the next contender waits for a
// reservation, and has the first claim to bytes freed in its directory. So every directory makes progress, however full the
// session is. enqueueLocked explains why. A request for more bytes than the directory and the rest of the limit can provide,
// for example in a directory without bytes, fails with ErrSessionFull at once.
type Budget struct {
	mu          sync.Mutex            // protects the fields below, and all directories, reservations and charges; taken last
	limit       int                   // of the bytes in use
	contenders  int                   // the limit of directory.calls
	used        int                   // bytes of all reservations and charges, and saved bytes
	saved       int                   // the sum of directory.saved
	directories map[string]*directory // by path; unused ones are dropped
	nodes       map[string]*Charge    // by the paths of znodes
	short       list.List             // the directories whose first waiter lacks bytes, the longest-waiting first
	spare       *directory            // an unused entry for the next directory; may be nil
}

// directory counts the contenders of the session in a directory, and their bytes.
type directory struct {
	dir     string
	bytes   int           // of reservations and charges, and saved bytes
	saved   int           // freed bytes kept for the waiters of the directory
	most    int           // the most bytes any waiter needs; at most bytes
	calls   int           // calls with a reservation
	unsent  int           // calls with a reservation whose first create was not sent yet
	waiters list.List     // of *Reservation, in the order of the requests
	short   *list.Element // in Budget.short; nil if not in the list
}

// Reservation is the right of a call to create ephemeral znodes in a directory, as many as its bytes allow. The call
// returns the reservation with [Reservation.End], and may leave its znodes behind.
type Reservation struct {
	b         *Budget
	directory *directory
	bytes     int           // for znodes yet to be created
	isSent    bool          // the first create was sent
	isOver    bool          // after End
	given     chan struct{} // closed when the reservation is granted; nil: granted at once
	inQueue   *list.Element // in directory.waiters; nil once granted
	first     Charge        // of the first znode, so most reservations are a single allocation
}

// New returns a budget of limit bytes, of DefaultMaxBytes if limit is 0.
func New(limit int) *Budget {
	if limit == 0 {
		limit = DefaultMaxBytes
	}
	return &Budget{limit: limit, contenders: MaxContenders, directories: map[string]*directory{}, nodes: map[string]*Charge{}}
}

// TryReserve makes a reservation without waiting, even if the directory has MaxContenders contenders, because the caller's znode waits for no
// other one. If the bytes are not free, or if the first waiter of the directory lacks nothing but bytes, the error is ErrNotAcquired. If the bytes
// of the directory and the free bytes are not enough, the error is ErrSessionFull.
func (b *Budget) TryReserve(dir string, bytes int) (*Reservation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.directoryLocked(dir)
	defer b.dropUnusedLocked(d)
	switch {
	case d.short == nil && b.fitsLocked(bytes):
		r := &Reservation{b: b, directory: d, bytes: bytes, isSent: true}
		b.giveLocked(d, r)
		b.updateLocked(d)
		return r, nil
	case !b.fitsLocked(bytes - d.bytes):
		return nil, b.fullError()
	default:
		return nil, zkutil.ErrNotAcquired
	}
}

// ReserveAhead makes a reservation ahead of all waiting calls. If not enough bytes are left, the error is
// ErrSessionFull.
func (b *Budget) ReserveAhead(dir string, bytes int) (*Reservation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.fitsLocked(bytes) {
		return nil, b.fullError()
	}
	r := &Reservation{b: b, directory: b.directoryLocked(dir), bytes: bytes, isSent: true}
	b.giveLocked(r.directory, r)
	b.updateLocked(r.directory)
	return r, nil
}

// Inherit returns a reservation that receives the bytes of an existing znode when the znode is deleted, before any
// other call can take these bytes. For a deleted znode Inherit returns nil.
func (b *Budget) Inherit(path string) *Reservation {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.nodes[path]
	if c == nil {
		return nil
	}
	r := &Reservation{b: b, directory: c.reservation.directory, isSent: true}
	b.giveLocked(r.directory, r)
	b.updateLocked(r.directory)
	c.reservation = r
	return r
}

// Request asks for a reservation. While the directory has contenders of this session, the caller may have to wait for their
// bytes (see [Reservation.Await]). If the bytes of the directory and the free bytes are not enough, the error is
// ErrSessionFull.
func (b *Budget) Request(dir string, bytes int) (*Reservation, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.directoryLocked(dir)
	defer b.dropUnusedLocked(d)
	r := &Reservation{b: b, directory: d, bytes: bytes}
	switch {
	case d.waiters.Len() == 0 && d.calls < b.contenders && b.fitsLocked(bytes):
		b.giveLocked(d, r)
		return r, nil
	case !b.fitsLocked(bytes - d.bytes):
		return nil, b.fullError()
	}
	r.given = make(chan struct{})
	b.enqueueLocked(d, r)
	return r, nil
}

// IsGiven reports whether the reservation is granted.
func (r *Reservation) IsGiven() bool {
	if r.given == nil {
		return true
	}
	select {
	case <-r.given:
		return true
	default:
		return false
	}
}

// Await waits until the reservation is granted. If ctx ends first, Await ends the reservation, and the error is an
// InterruptedError.
func (r *Reservation) Await(ctx context.Context) error {
	select {
	case <-r.given:
		return nil
	case <-ctx.Done():
		r.End()
		return zkutil.Interrupted(ctx, nil)
	}
}

// End returns a reservation, granted or not, to the budget. Znodes that may exist still count.
func (r *Reservation) End() {
	b, d := r.b, r.directory
	b.mu.Lock()
	defer b.mu.Unlock()
	r.isOver = true
	if r.inQueue != nil {
		d.dequeue(r)
		b.freeLocked(d, 0) // the next waiter may need fewer bytes
		return
	}
	r.markSentLocked()
	d.calls--
	b.freeLocked(d, r.bytes)
}

// MarkSent lets the next waiting call of the directory continue, because the server will number its znode after the
// first znode of this reservation.
func (r *Reservation) MarkSent() {
	r.b.mu.Lock()
	defer r.b.mu.Unlock()
	if r.markSentLocked(); !r.isOver {
		r.b.updateLocked(r.directory)
	}
}

func (r *Reservation) markSentLocked() {
	if !r.isSent {
		r.isSent = true
		r.directory.unsent--
	}
}

func (b *Budget) fitsLocked(bytes int) bool { return bytes <= b.limit-b.used }

func (b *Budget) fullError() error {
	return fmt.Errorf("%w: the paths of its ephemeral znodes must not exceed %d bytes; open another client for more paths", zkutil.ErrSessionFull, b.limit)
}

func (b *Budget) giveLocked(d *directory, r *Reservation) {
	d.calls++
	if !r.isSent {
		d.unsent++
	}
	b.addLocked(d, r.bytes)
}

func (b *Budget) addLocked(d *directory, bytes int) {
	b.used += bytes
	d.bytes += bytes
}

// directoryLocked returns the entry of a directory. A caller that grants no reservation has to call dropUnusedLocked.
func (b *Budget) directoryLocked(dir string) *directory {
	d := b.directories[dir]
	if d == nil {
		if d, b.spare = b.spare, nil; d == nil {
			d = &directory{}
		}
		d.dir = dir
		b.directories[dir] = d
	}
	return d
}

func (b *Budget) dropUnusedLocked(d *directory) {
	if d.bytes == 0 && d.waiters.Len() == 0 && d.calls == 0 && b.directories[d.dir] == d {
		delete(b.directories, d.dir)
		d.dir, b.spare = "", d
	}
}

const (
	// LengthField is the cost of a znode besides its path, because a transaction stores the length of each path.
	LengthField = 4

	uuidLength = 36
	leastBytes = len("/") + uuidLength + zkutil.NumberDigits + LengthField // every name has a uuid and a number
)

// Charge is the cost of a znode that may exist. A charge has a single owner. At first that is the create, until the
// server answers; then it is the task looking for the znode, or the path in Budget.nodes.
type Charge struct {
	reservation *Reservation // nil after the end of the charge
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

// Bind binds the charge to the path of its znode: Budget.Free, or the end of the session, ends the charge.
func (c *Charge) Bind(path string) {
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

// Free ends the charge of the znode at path, which is deleted.
func (b *Budget) Free(path string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c := b.nodes[path]; c != nil {
		b.endLocked(c)
	}
}

// AddTwin charges a second znode of a create. The twin counts even beyond the limit: in that case the budget grants
// no reservation until the twin is deleted.
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

// EndSession ends the charges of all znodes with known paths, because the servers deleted these znodes with the
// session. Unanswered creates still count.
func (b *Budget) EndSession() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.nodes {
		b.endLocked(c)
	}
}

// enqueueLocked makes a reservation wait, and gives its directory the bytes that the directory lacks for the reservation.
//
// A contender that lacks bytes waits until others leave its directory. A waiter never depends on other directories,
// because each directory always has as many bytes as its most demanding waiter needs: further freed bytes become free for
// all directories, and a request that needs more reserves the difference at once, or fails. So once the earlier
// contenders of its directory are deleted, the first waiter has its bytes, regardless of other directories. A waiter that
// waited for the bytes of other directories could wait for ever: newcomers would take these bytes one by one, or their
// owner would wait for a lock of the waiter.
func (b *Budget) enqueueLocked(d *directory, r *Reservation) {
	if missing := r.bytes - d.bytes; missing > 0 {
		b.saveLocked(d, missing)
		b.addLocked(d, missing)
	}
	d.most = max(d.most, r.bytes)
	r.inQueue = d.waiters.PushBack(r)
	b.updateShortLocked(d)
}

// dequeue removes a waiting reservation. The caller has to free the bytes that the directory need no longer keep.
func (d *directory) dequeue(r *Reservation) {
	d.waiters.Remove(r.inQueue)
	if r.bytes < d.most {
		return
	}
	before := d.most
	d.most = 0
	for e := d.waiters.Front(); e != nil && d.most < before; e = e.Next() { // one step while all need the same
		d.most = max(d.most, e.Value.(*Reservation).bytes)
	}
}

// saveLocked keeps bytes of a directory for the waiters there.
func (b *Budget) saveLocked(d *directory, bytes int) {
	d.saved += bytes
	b.saved += bytes
}

// releaseLocked frees saved bytes.
func (b *Budget) releaseLocked(d *directory, bytes int) {
	b.saveLocked(d, -bytes)
	b.addLocked(d, -bytes)
}

// freeLocked takes bytes back from a contender of a directory, and gives them to waiting calls, first to calls in the same
// directory.
func (b *Budget) freeLocked(d *directory, bytes int) {
	b.saveLocked(d, bytes)
	b.updateLocked(d)
	b.dropUnusedLocked(d)
}

// updateLocked admits the calls that need not wait any longer after a change of a directory.
func (b *Budget) updateLocked(d *directory) {
	b.admitLocked(d)
	b.admitShortLocked()
}

// admitLocked grants a reservation to the first waiter of a directory, if the directory may admit a call, and frees the
// bytes that the directory need not keep. The reservation takes its bytes from the saved bytes, then from the free ones.
func (b *Budget) admitLocked(d *directory) {
	if first := d.waiters.Front(); first != nil && d.isOpen(b) {
		if r := first.Value.(*Reservation); r.bytes <= d.saved || b.fitsLocked(r.bytes-d.saved) {
			d.dequeue(r)
			r.inQueue = nil
			b.releaseLocked(d, min(d.saved, r.bytes))
			b.giveLocked(d, r)
			close(r.given)
		}
	}
	b.releaseLocked(d, min(d.saved, d.bytes-d.most))
	b.updateShortLocked(d)
}

// admitShortLocked gives free bytes to the directories whose first waiter lacks bytes, the longest-waiting first.
func (b *Budget) admitShortLocked() {
	for e := b.short.Front(); e != nil && (b.saved > 0 || b.fitsLocked(leastBytes)); {
		next := e.Next()
		b.admitLocked(e.Value.(*directory))
		e = next
	}
}

// isOpen reports whether the first waiter can lack nothing but bytes.
func (d *directory) isOpen(b *Budget) bool { return d.calls < b.contenders && d.unsent == 0 }

// updateShortLocked updates the list of directories short of bytes.
func (b *Budget) updateShortLocked(d *directory) {
	switch isShort := d.waiters.Len() > 0 && d.isOpen(b); {
	case isShort && d.short == nil:
		d.short = b.short.PushBack(d)
	case !isShort && d.short != nil:
		b.short.Remove(d.short)
		d.short = nil
	}
}
