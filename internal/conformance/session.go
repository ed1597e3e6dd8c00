package conformance

import (
	"maps"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// session is the client's side of one session.
type session struct {
	name     string // as in transcripts
	id       int64
	password []byte
	timeout  time.Duration
	zxid     int64 // the latest zxid seen, for reconnects
	line     *line // nil while the session has no connection
	mute     bool  // no more requests can be sent: a frame is incomplete
	xid      int32
	ownXids  int32 // number of requests with the engine's own xids
	watches  map[watch]bool
}

// watch is a watch that the client believes to be set.
type watch struct{ kind, path string }

// The kinds of watches, in setWatches.
const (
	watchData  = "data"
	watchExist = "exist"
	watchChild = "child"
)

// nextXid returns the xid of the next request.
func (s *session) nextXid(isOwn bool) int32 {
	if isOwn {
		s.ownXids++
		return firstOwnXid + 1 - s.ownXids
	}
	s.xid++
	return s.xid
}

// answered records the watch that an answered request has set.
func (s *session) answered(op, code int32, step Step, path string) {
	if !step.has("watch") {
		return
	}
	switch {
	case op == proto.OpExists && code == proto.CodeNoNode:
		s.watches[watch{watchExist, path}] = true
	case code != proto.CodeOK:
	case op == proto.OpExists || op == proto.OpGetData:
		s.watches[watch{watchData, path}] = true
	case op == proto.OpGetChildren || op == proto.OpGetChildren2:
		s.watches[watch{watchChild, path}] = true
	}
}

// fired removes the watches that an event has used up.
func (s *session) fired(event int32, path string) {
	switch event {
	case proto.EventCreated, proto.EventDataChanged:
		delete(s.watches, watch{watchData, path})
		delete(s.watches, watch{watchExist, path})
	case proto.EventChildrenChanged:
		delete(s.watches, watch{watchChild, path})
	case proto.EventDeleted:
		delete(s.watches, watch{watchData, path})
		delete(s.watches, watch{watchExist, path})
		delete(s.watches, watch{watchChild, path})
	}
}

// watching returns the paths of a kind of watches.
func (s *session) watching(kind string) []string {
	var paths []string
	for w := range maps.Keys(s.watches) {
		if w.kind == kind {
			paths = append(paths, w.path)
		}
	}
	slices.Sort(paths)
	return paths
}

// setWatches encodes a request that sets all watches again.
func (s *session) setWatches() *proto.Encoder {
	return proto.NewEncoder().Int32(proto.XidSetWatches).Int32(proto.OpSetWatches).Int64(s.zxid).
		Strings(s.watching(watchData)).Strings(s.watching(watchExist)).Strings(s.watching(watchChild))
}

// hangUp cuts the connection.
func (s *session) hangUp() {
	if s.line != nil {
		s.line.close()
		s.line = nil
	}
}
