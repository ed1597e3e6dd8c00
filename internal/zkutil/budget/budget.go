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

// Budget bounds the ephemeral znodes of a session. To close a session, the servers write the paths of all its
// ephemeral znodes into one transaction, and they can't read a transaction longer than a frame (ZOOKEEPER-4306). A
// znode counts from the moment before its create is sent until the znode, or its session, is known to be gone.
//
// A call makes a [Reservation] before it creates a znode. A directory grants reservations in the order of the
// requests. Requests that had to wait are granted one by one, each when the create of the previous one has been sent,
// and so the server numbers the znodes in the order of the requests. In a directory which has bytes of the budget
// already, the next contender waits for a reservation, and has the first claim to bytes freed in its directory. So
// every directory makes progress, however full the session is: see short.go. A request for more bytes than the directory
// and the rest of the limit can provide, for example in a directory without bytes, fails with ErrSessionFull at once.
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
	short   *list.Element // in Budget.short; nil: not in the list
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

// TryReserve makes a reservation without waiting. If a call of Request would have to wait, the error is ErrNotAcquired,
// and otherwise, if not enough bytes are left, ErrSessionFull.
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

// Inherit returns a reservation that receives the bytes of an existing znode when the znode goes, before any other call
// can take these bytes. For a znode that has gone Inherit returns nil.
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
// bytes: see [Reservation.Await]. If the bytes of the directory and the free bytes are not enough, the error is
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

// isEmpty reports whether the directory has no contender of this session, waiting ones included.
func (d *directory) isEmpty() bool { return d.bytes == 0 && d.waiters.Len() == 0 }

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
	if d.isEmpty() && d.calls == 0 && b.directories[d.dir] == d {
		delete(b.directories, d.dir)
		d.dir, b.spare = "", d
	}
}
