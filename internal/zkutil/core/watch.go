package core

import "github.com/zkrecipes/zkrecipes/internal/proto"

// WatchKind is what a watch waits for.
type WatchKind uint8

// The kinds of watches.
const (
	WatchData     WatchKind = iota // a change or the deletion of a znode
	WatchExists                    // the creation of a znode
	WatchChildren                  // a change of the children of a znode, or its deletion
)

// Watchers returns the table in which a server keeps watches of a kind, as the type that RemoveWatches uses.
func (k WatchKind) Watchers() int32 {
	if k == WatchChildren {
		return proto.WatchersOfChildren
	}
	return proto.WatchersOfData
}

// RemovedWith returns the kinds of watches on a znode that a server removes together, because it has one table for them.
func (k WatchKind) RemovedWith() []WatchKind {
	if k == WatchChildren {
		return []WatchKind{WatchChildren}
	}
	return []WatchKind{WatchData, WatchExists}
}

// FiredBy returns the kinds of watches that an event consumes, as in zk.Conn.
func FiredBy(event int32) []WatchKind {
	switch event {
	case proto.EventCreated:
		return []WatchKind{WatchExists}
	case proto.EventDataChanged:
		return []WatchKind{WatchExists, WatchData}
	case proto.EventChildrenChanged:
		return []WatchKind{WatchChildren}
	case proto.EventDeleted:
		return []WatchKind{WatchExists, WatchData, WatchChildren}
	default:
		return nil
	}
}

// Watch is a watch of one kind on one znode, shared by all its users, from the request until it is over: because the znode changed, because the
// connection was lost, because the server did not set it, or because the server removed it.
//
// A watch belongs to its users, until each calls Leave. It then stays at the server until the session next reads all watches again, so that a
// caller that returns sooner finds it in place. At that moment, the session has the server remove the watch instead.
//
// A user of a watch is told of every change behind the read that it relies on. That rests on the order of one connection, in which an event
// precedes each answer that shows its change, and on three rules: Covers, Join, and EndRemoval.
type Watch struct {
	Users  int   // until Leave
	IsSet  bool  // the server answered that the watch is set
	IsOver bool  // it is not, or no longer, at the server
	Zxid   int64 // of the latest change of the kind for which the watch fires, when it was set; 0: it waits for the creation

	isRemoving bool // the server was asked to remove the watch
	stays      bool // the server can't remove the watch, or must not
}

// NewWatch returns a watch that is to be asked for, with one user.
func NewWatch() Watch { return Watch{Users: 1} }

// Join adds a user. It fails while the server removes the watch: a new watch has to be asked for afterwards.
func (w *Watch) Join() bool {
	if w.isRemoving {
		return false
	}
	w.Users++
	w.stays = false
	return true
}

// Leave ends a Join, or the use of NewWatch. canRemove is false if the server is known to lack the request for a removal.
func (w *Watch) Leave(canRemove bool) {
	w.Users--
	w.stays = !canRemove
}

// OnAnswer records the answer to the request for the watch, with the zxid of the latest change of its kind.
func (w *Watch) OnAnswer(isSet bool, zxid int64) {
	w.IsSet, w.Zxid = isSet, zxid
	w.IsOver = w.IsOver || !isSet
}

// OnEvent records that the watch fired, or that its connection is lost.
func (w *Watch) OnEvent() { w.IsOver = true }

// Covers reports whether the watch fires at each change behind a read of another user, whose answer has the zxid. The server may have executed
// that read before the read that set the watch. Then neither shows what changed in between, and the caller has to read again.
func (w *Watch) Covers(zxid int64) bool { return w.IsSet && zxid >= w.Zxid }

// HasMissed reports whether a later read shows a change whose event did not arrive.
func (w *Watch) HasMissed(zxid int64) bool { return zxid != w.Zxid }

// IsUnused reports whether the session is to be saved until the server has removed the watch.
func (w *Watch) IsUnused() bool { return w.Users == 0 && !w.IsOver && !w.stays }

// BeginRemoval reports whether to ask the server for the removal of a watch. mayAsk is false if that must wait. canRemove is called for an unused
// watch, and returns false if the server lacks the request, or if the user of zk.Conn relies on the watch.
func (w *Watch) BeginRemoval(mayAsk bool, canRemove func() bool) bool {
	if w.Users > 0 {
		return false
	}
	can := canRemove()
	w.stays = w.stays || !can
	w.isRemoving = can && mayAsk
	return w.isRemoving
}

// Removal is the answer to a request for the removal of a watch.
type Removal int

// The answers.
const (
	Unanswered Removal = iota // the connection was lost
	Refused                   // the watch stays
	WasNone                   // the server has no such watch
	Removed
)

// IsGone reports whether the server no longer has the watch.
func (r Removal) IsGone() bool { return r == WasNone || r == Removed }

// EndRemoval records the answer, and reports whether all watches of RemovedWith that are set have to fire as lost. The session may have asked for
// such a watch ahead of the removal: for one on the data of a znode that was created since this watch began to wait for the creation, or for one
// in place of this watch, if it fired.
func (w *Watch) EndRemoval(r Removal) (losesOthers bool) {
	w.isRemoving = false
	w.stays = w.stays || r == Refused
	w.IsOver = w.IsOver || r.IsGone()
	return r == Removed
}
