package session

import (
	"container/list"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

const (
	// DefaultMaxBytes is half of what a server takes in one frame (jute.maxbuffer).
	DefaultMaxBytes = 512 << 10
	// MaxContenders bounds the contenders of one session that wait in one directory at a time.
	MaxContenders = 500
)

// budget bounds the ephemeral znodes of the session, because the servers write the paths of all of them
// into the one transaction that closes the session, and can't read it if it is longer than a frame
// (ZOOKEEPER-4306). A znode counts from before its create is sent until it is known to be gone, or its
// session is.
//
// Whoever wants a znode first takes a [Place]. Places of one directory are given in the order in which they
// were asked for, and to those who had to wait one by one: the next one when the create of the one before is
// sent. So the server numbers them in that order. If the directory has bytes of the budget already, its next
// contender waits until a place is free, and gets the bytes that become free in its own directory before anybody
// else. So every directory goes on, however full the session is. A directory without bytes has nobody to wait
// for: there the error is ErrSessionFull. For a contender that needs more bytes than its directory has, they are collected: see short.go.
type budget struct {
	mu         sync.Mutex         // protects what is below, and all rooms, places and charges. Taken last
	limit      int                // of used
	contenders int                // the limit of room.calls
	used       int                // bytes of all places and charges, and saved
	saved      int                // the sum of room.saved
	rooms      map[string]*room   // by directory; those that are in use
	nodes      map[string]*charge // by the paths of znodes
	short      list.List          // the rooms whose first waiter lacks bytes, those first that have lacked them for longest
	large      list.List          // of these, those whose first waiter needs more bytes than its directory has, in the same order
	collector  *list.Element      // the first of large, for which rounds runs
	rounds     *time.Timer        // of letOthersPass; nil: none yet
	pause      time.Duration      // before the next round
	spare      *room              // one that is not in use, for the next directory; may be nil
}

// room is what the session knows of a directory in which it has contenders: what they cost, and which of them was first.
type room struct {
	dir     string
	first   string        // name of the latest hold of this session that was granted as the first of its queue; "": none
	bytes   int           // of its places and charges, and saved
	saved   int           // what is kept for the first waiter
	calls   int           // with a place
	unsent  int           // of these, those of whom nothing has been sent yet
	waiters list.List     // of *Place, in the order in which they came
	short   *list.Element // in budget.short; nil: it is not there
	large   *list.Element // in budget.large; nil: it is not there
}

// Place is the right of one call to create ephemeral znodes in a directory, as many as its bytes allow. The
// call gives it back with [Place.End]. The znodes may stay.
type Place struct {
	b      *budget
	room   *room
	bytes  int           // reserved for znodes that do not exist
	isSent bool          // the first create
	isOver bool          // after End
	given  chan struct{} // closed when the place is given; nil: it was free at once
	inRoom *list.Element // in room.waiters; nil once the place is given
	first  charge        // of its first znode, so that most places are one allocation
}

func newBudget(limit int) *budget {
	if limit == 0 {
		limit = DefaultMaxBytes
	}
	return &budget{limit: limit, contenders: MaxContenders, rooms: map[string]*room{}, nodes: map[string]*charge{}}
}

// AwaitPlace takes a place in dir. While dir has contenders of this session already, it waits for one until
// ctx ends or the session closes. Otherwise it returns ErrSessionFull if there are not enough bytes left.
func (s *Session) AwaitPlace(ctx context.Context, dir string, bytes int) (*Place, error) {
	p, err := s.budget.ask(dir, bytes)
	if err != nil || p.given == nil {
		return p, err
	}
	ctx, cancel := s.WhileOpen(ctx)
	defer cancel()
	select {
	case <-p.given:
		return p, nil
	case <-ctx.Done():
		p.End()
		return nil, zkutil.Interrupted(ctx, nil)
	}
}

// TryPlace takes a place in dir without waiting. If dir has contenders of this session already and there are
// not enough bytes for another, it returns ErrNotAcquired.
func (s *Session) TryPlace(dir string, bytes int) (*Place, error) {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.roomLocked(dir)
	defer b.dropUnusedLocked(r)
	switch {
	case r.short == nil && b.isFreeLocked(bytes):
		p := &Place{b: b, room: r, bytes: bytes, isSent: true}
		b.giveLocked(r, p)
		return p, nil
	case r.isEmpty() || bytes > b.limit:
		return nil, b.fullError()
	default:
		return nil, zkutil.ErrNotAcquired
	}
}

// ExtraPlace takes a place in dir before all who wait for one. It returns ErrSessionFull if there are not
// enough bytes left.
func (s *Session) ExtraPlace(dir string, bytes int) (*Place, error) {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.fitsLocked(bytes) {
		return nil, b.fullError()
	}
	p := &Place{b: b, room: b.roomLocked(dir), bytes: bytes, isSent: true}
	b.giveLocked(p.room, p)
	b.noteChangeLocked(p.room)
	return p, nil
}

// NextPlace returns a place that gets the bytes of a znode of ours when that goes, so that nobody else gets
// them. It returns nil for a znode that is gone.
func (s *Session) NextPlace(path string) *Place {
	b := s.budget
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.nodes[path]
	if c == nil {
		return nil
	}
	p := &Place{b: b, room: c.place.room, isSent: true}
	b.giveLocked(p.room, p)
	b.noteChangeLocked(p.room)
	c.place = p
	return p
}

// ask returns a place, which may still have to be waited for.
func (b *budget) ask(dir string, bytes int) (*Place, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.roomLocked(dir)
	defer b.dropUnusedLocked(r)
	p := &Place{b: b, room: r, bytes: bytes}
	switch {
	case bytes > b.limit:
		return nil, b.fullError()
	case r.waiters.Len() == 0 && r.calls < b.contenders && b.isFreeLocked(bytes):
		b.giveLocked(r, p)
		return p, nil
	case r.isEmpty():
		return nil, b.fullError()
	}
	p.given = make(chan struct{})
	p.inRoom = r.waiters.PushBack(p)
	b.noteChangeLocked(r)
	return p, nil
}

// End gives the place back: one that was given, or one that was still waited for. Znodes that may exist go on
// counting.
func (p *Place) End() {
	b, r := p.b, p.room
	b.mu.Lock()
	defer b.mu.Unlock()
	p.isOver = true
	if p.inRoom != nil {
		r.waiters.Remove(p.inRoom)
		b.freeLocked(r, 0) // the next one may need fewer bytes
		return
	}
	p.noteSentLocked()
	r.calls--
	b.freeLocked(r, p.bytes)
}

// noteSent notes that the server will number what comes now behind the first create of the place.
func (p *Place) noteSent() {
	p.b.mu.Lock()
	defer p.b.mu.Unlock()
	if p.noteSentLocked(); !p.isOver {
		p.b.admitLocked(p.room, p.b.mayTakeLocked(p.room))
	}
}

func (p *Place) noteSentLocked() {
	if !p.isSent {
		p.isSent = true
		p.room.unsent--
	}
}

// isEmpty reports whether the directory has no contender of this session, not even one that waits.
func (r *room) isEmpty() bool { return r.bytes == 0 && r.waiters.Len() == 0 }

func (b *budget) fitsLocked(bytes int) bool { return bytes <= b.limit-b.used }

func (b *budget) fullError() error {
	return fmt.Errorf("%w: the paths of its ephemeral znodes must not exceed %d bytes; open another client for more paths", zkutil.ErrSessionFull, b.limit)
}

func (b *budget) giveLocked(r *room, p *Place) {
	r.calls++
	if !p.isSent {
		r.unsent++
	}
	b.addLocked(r, p.bytes)
}

func (b *budget) addLocked(r *room, bytes int) {
	b.used += bytes
	r.bytes += bytes
}

// roomLocked returns the room of a directory. The caller has to call dropUnusedLocked unless it gives a
// place.
func (b *budget) roomLocked(dir string) *room {
	r := b.rooms[dir]
	if r == nil {
		if r, b.spare = b.spare, nil; r == nil {
			r = &room{}
		}
		r.dir = dir
		b.rooms[dir] = r
	}
	return r
}

func (b *budget) dropUnusedLocked(r *room) {
	if r.isEmpty() && r.calls == 0 && b.rooms[r.dir] == r {
		delete(b.rooms, r.dir)
		r.dir, r.first, b.spare = "", "", r
	}
}
