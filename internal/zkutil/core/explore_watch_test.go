package core

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// This explorer runs the shipping Watch for the users of one session and one znode, against a server that executes the requests of a connection in
// order, and sends each event ahead of the answers that show its change. Every order of the steps within the bounds is tried.

// watchBounds are the bounds of an exploration.
type watchBounds struct {
	users   []WatchKind // what each user waits for
	rounds  int8        // how often all users together begin
	changes int8        // of the znode
	looks   int8        // of the session at its watches
	cuts    int8        // of the connection
	exists  bool        // the znode exists at first
}

const (
	maxUsers   = 3
	maxObjects = 5 // watches that a user may still refer to
	maxQueue   = 8
	noObject   = -1
)

// watchWorld is a state. Its values are comparable, so that a state is its own key.
type watchWorld struct {
	zxid      int8 // of the latest change of the znode
	exists    bool
	isWatched bool // the server has a watch of the session
	requests  [maxQueue]watchRequest
	answers   [maxQueue]watchAnswer
	objects   [maxObjects]watchObject
	table     [2]int8 // the session's watch of each kind
	users     [maxUsers]watchUser
	looks     [2]watchLook // at each kind

	roundsLeft, changesLeft, looksLeft, cutsLeft int8
}

// watchObject is a watch of the session, shared by its users.
type watchObject struct {
	Watch

	isFired, isAnswered bool
}

type watchRequest struct {
	op     int32 // 0: none
	from   int8  // a user, or, from maxUsers on, a look
	object int8  // the watch that the request sets
}

type watchAnswer struct {
	watchRequest

	isEvent bool
	event   int32
	isOK    bool
	zxid    int8
}

type userPhase int8

const (
	idle     userPhase = iota
	unsent             // the request will be sent
	asking             // an answer is awaited
	answered           // the answer arrived
	joining            // the answer to another user's request is awaited
	watching
)

type watchUser struct {
	phase    userPhase
	object   int8
	isShared bool
	isUsable bool
	isOK     bool
	zxid     int8
}

type watchLook struct {
	phase     userPhase
	object    int8
	isRemoval bool
	result    Removal
	isOK      bool
	zxid      int8
}

// watchPremise replaces a rule of Watch by one that is wrong.
type watchPremise string

const (
	anyCovers   watchPremise = "any watch covers a read"
	joinsAlways watchPremise = "a watch can be used while it is being removed"
	removesOne  watchPremise = "a removal ends one watch"
	firesOne    watchPremise = "an event fires the watches of one kind"
)

func newWatchWorld(b watchBounds) watchWorld {
	w := watchWorld{zxid: 1, exists: b.exists, table: [2]int8{noObject, noObject}, roundsLeft: b.rounds, changesLeft: b.changes, looksLeft: b.looks, cutsLeft: b.cuts}
	for i := range w.users {
		w.users[i].object = noObject
	}
	for i := range w.looks {
		w.looks[i].object = noObject
	}
	return w
}

// collect frees the watches that nothing refers to.
func (w *watchWorld) collect() {
	for i := range w.objects {
		o := int8(i)
		isUsed := slices.Contains(w.table[:], o) ||
			slices.ContainsFunc(w.users[:], func(u watchUser) bool { return u.object == o }) ||
			slices.ContainsFunc(w.looks[:], func(l watchLook) bool { return l.object == o }) ||
			slices.ContainsFunc(w.requests[:], func(r watchRequest) bool { return r.op != 0 && r.object == o }) ||
			slices.ContainsFunc(w.answers[:], func(a watchAnswer) bool { return a.op != 0 && a.object == o })
		if !isUsed {
			w.objects[i] = watchObject{}
		}
	}
}

func (w *watchWorld) newObject() int8 {
	o := slices.Index(w.objects[:], watchObject{})
	w.objects[o] = watchObject{Watch: NewWatch()}
	return int8(o)
}

// settle is what the session does after each event of a Watch.
func (w *watchWorld) settle(o int8) {
	for k := range w.table {
		if w.table[k] == o && w.objects[o].IsOver {
			w.table[k] = noObject
		}
	}
}

func (w *watchWorld) fire(o int8) {
	w.objects[o].OnEvent()
	w.objects[o].isFired = true
	w.settle(o)
}

func (w *watchWorld) join(o int8, p watchPremise) bool {
	if p == joinsAlways {
		w.objects[o].Users++
		return true
	}
	return w.objects[o].Join()
}

func (w *watchWorld) send(r watchRequest) {
	w.requests[slices.Index(w.requests[:], watchRequest{})] = r
}

func (w *watchWorld) answer(a watchAnswer) {
	w.answers[slices.Index(w.answers[:], watchAnswer{})] = a
}

func opOf(kind WatchKind) int32 {
	if kind == WatchExists {
		return proto.OpExists
	}
	return proto.OpGetData
}

// serve executes the first request.
func (w *watchWorld) serve() {
	r := w.requests[0]
	copy(w.requests[:], w.requests[1:])
	w.requests[maxQueue-1] = watchRequest{}
	a := watchAnswer{watchRequest: r}
	if r.op == proto.OpRemoveWatches {
		a.isOK, w.isWatched = w.isWatched, false
		w.answer(a)
		return
	}
	if a.isOK = w.exists; a.isOK {
		a.zxid = w.zxid
	}
	if r.object != noObject && (a.isOK || r.op == proto.OpExists) {
		w.isWatched = true
	}
	w.answer(a)
}

// change creates, changes or deletes the znode.
func (w *watchWorld) change(event int32) {
	w.zxid++
	w.exists = event != proto.EventDeleted
	if w.isWatched {
		w.isWatched = false
		w.answer(watchAnswer{watchRequest: watchRequest{op: -1, object: noObject}, isEvent: true, event: event})
	}
}

// take is what the session does with the first answer or event.
func (w *watchWorld) take(p watchPremise) {
	a := w.answers[0]
	copy(w.answers[:], w.answers[1:])
	w.answers[maxQueue-1] = watchAnswer{}
	if a.isEvent {
		kinds := FiredBy(a.event)
		if p == firesOne {
			kinds = kinds[:1]
		}
		for _, k := range kinds {
			if k <= WatchExists && w.table[k] != noObject {
				w.fire(w.table[k])
			}
		}
		return
	}
	if a.object != noObject {
		isSet := a.isOK == (a.op == proto.OpGetData)
		w.objects[a.object].OnAnswer(isSet, int64(a.zxid))
		w.objects[a.object].isAnswered = true
		w.settle(a.object)
	}
	if a.from < maxUsers {
		u := &w.users[a.from]
		u.phase, u.isOK, u.zxid = answered, a.isOK, a.zxid
		return
	}
	l := &w.looks[a.from-maxUsers]
	l.phase, l.isOK, l.zxid, l.result = answered, a.isOK, a.zxid, WasNone
	if a.isOK {
		l.result = Removed
	}
}

// cut ends the connection. All requests fail.
func (w *watchWorld) cut() {
	w.isWatched = false
	for _, o := range w.table {
		if o != noObject {
			w.fire(o)
		}
	}
	fail := func(r watchRequest) {
		if r.object != noObject {
			w.objects[r.object].OnAnswer(false, 0)
			w.objects[r.object].isAnswered = true
		}
		if r.from < maxUsers {
			w.give(int(r.from))
			return
		}
		l := &w.looks[r.from-maxUsers]
		l.phase, l.result, l.isOK, l.zxid = answered, Unanswered, false, -1
	}
	for _, r := range w.requests {
		if r.op != 0 {
			fail(r)
		}
	}
	for _, a := range w.answers {
		if a.op > 0 {
			fail(a.watchRequest)
		}
	}
	w.requests, w.answers = [maxQueue]watchRequest{}, [maxQueue]watchAnswer{}
}

// give ends what a user does, who gives back the watch.
func (w *watchWorld) give(i int) {
	u := &w.users[i]
	if u.isUsable {
		w.objects[u.object].Leave(true)
		w.settle(u.object)
	}
	*u = watchUser{object: noObject}
}

// begin is watches.start and watches.watchDir of the session, up to the moment when the request is sent.
func (w *watchWorld) begin(i int, kind WatchKind, p watchPremise) {
	u := &w.users[i]
	o := w.table[kind]
	switch {
	case o == noObject:
		o = w.newObject()
		w.table[kind] = o
		*u = watchUser{phase: unsent, object: o, isUsable: true}
	case w.join(o, p):
		*u = watchUser{phase: unsent, object: o, isUsable: true, isShared: true}
		if kind == WatchExists {
			u.phase = joining
		}
	default:
		*u = watchUser{phase: unsent, object: noObject, isShared: true}
	}
}

// goOn is watchedRead.waitAnswer and watches.await of the session. It returns false while there is nothing to do.
func (w *watchWorld) goOn(i int, kind WatchKind, p watchPremise) bool {
	u := &w.users[i]
	switch {
	case u.phase == answered && !u.isUsable: // again, because the watch is being removed
		w.begin(i, kind, p)
	case u.phase == answered && !u.isOK && kind == WatchData, u.phase == answered && u.isOK && kind == WatchExists:
		w.give(i)
	case u.phase == answered && u.isShared && !w.objects[u.object].isAnswered:
		return false
	case u.phase == answered && u.isShared && !w.covers(u, p):
		w.give(i)
		w.begin(i, kind, p)
	case u.phase == answered:
		u.phase = watching
	case u.phase == joining && w.objects[u.object].isAnswered:
		if u.phase, u.zxid = watching, 0; !w.objects[u.object].IsSet {
			w.give(i)
		}
	default:
		return false
	}
	return true
}

func (w *watchWorld) covers(u *watchUser, p watchPremise) bool {
	o := &w.objects[u.object]
	return o.Covers(int64(u.zxid)) || p == anyCovers && o.IsSet
}

// look begins to remove or to read a watch.
func (w *watchWorld) look(kind WatchKind) {
	o := w.table[kind]
	w.looksLeft--
	w.looks[kind] = watchLook{phase: unsent, object: o, isRemoval: w.objects[o].BeginRemoval(true, func() bool { return true })}
}

// endLook is watches.onRemoveAnswered and keeper.onReadAnswered of the session.
func (w *watchWorld) endLook(kind WatchKind, p watchPremise) {
	l := w.looks[kind]
	w.looks[kind] = watchLook{object: noObject}
	o := &w.objects[l.object]
	switch {
	case l.isRemoval:
		if o.EndRemoval(l.result) && p != removesOne {
			for _, k := range kind.RemovedWith() {
				if other := w.table[k]; other != noObject && other != l.object && w.objects[other].IsSet {
					w.fire(other)
				}
			}
		}
		w.settle(l.object)
	case l.zxid >= 0 && o.HasMissed(int64(l.zxid)) && !o.isFired:
		for _, k := range FiredBy(proto.EventDeleted) {
			if k <= WatchExists && w.table[k] != noObject {
				w.fire(w.table[k])
			}
		}
	}
}

// next returns the states that may follow, with the names of the steps.
func (w watchWorld) next(b watchBounds, p watchPremise) map[string]watchWorld {
	next := map[string]watchWorld{}
	try := func(isPossible bool, step string, do func(n *watchWorld)) {
		if isPossible {
			n := w
			do(&n)
			n.collect()
			next[step] = n
		}
	}
	for i, kind := range b.users {
		u, name := w.users[i], fmt.Sprintf("user %d", i)
		try(u.phase == idle && w.roundsLeft > 0, name+" asks", func(n *watchWorld) {
			n.roundsLeft--
			n.begin(i, kind, p)
		})
		try(u.phase == unsent, name+"'s request is sent", func(n *watchWorld) {
			r := watchRequest{op: opOf(kind), from: int8(i), object: noObject}
			if !u.isShared {
				r.object = u.object
			}
			n.users[i].phase = asking
			n.send(r)
		})
		if n := w; n.goOn(i, kind, p) {
			n.collect()
			next[name+" goes on"] = n
		}
		try(u.phase == watching, name+" leaves", func(n *watchWorld) { n.give(i) })
	}
	for k := range w.table {
		kind, l, name := WatchKind(k), w.looks[k], fmt.Sprintf("look %d", k)
		isSet := w.table[k] != noObject && w.objects[w.table[k]].IsSet
		try(l.phase == idle && w.looksLeft > 0 && isSet, name+" begins", func(n *watchWorld) { n.look(kind) })
		try(l.phase == unsent, name+" is sent", func(n *watchWorld) {
			r := watchRequest{op: opOf(kind), from: int8(maxUsers + k), object: noObject}
			if l.isRemoval {
				r.op = proto.OpRemoveWatches
			}
			n.looks[k].phase = asking
			n.send(r)
		})
		try(l.phase == answered, name+" ends", func(n *watchWorld) { n.endLook(kind, p) })
	}
	try(w.requests[0].op != 0, "the server executes a request", func(n *watchWorld) { n.serve() })
	try(w.answers[0].op != 0, "the session takes an answer or event", func(n *watchWorld) { n.take(p) })
	mayChange := w.changesLeft > 0
	change := func(event int32) func(n *watchWorld) {
		return func(n *watchWorld) {
			n.changesLeft--
			n.change(event)
		}
	}
	try(mayChange && !w.exists, "the znode is created", change(proto.EventCreated))
	try(mayChange && w.exists, "the znode changes", change(proto.EventDataChanged))
	try(mayChange && w.exists, "the znode is deleted", change(proto.EventDeleted))
	try(w.cutsLeft > 0, "the connection is lost", func(n *watchWorld) {
		n.cutsLeft--
		n.cut()
	})
	return next
}

// violation returns what is wrong in a state, "" if nothing is. While anything is on its way, the users may still be told.
func (w *watchWorld) violation(b watchBounds) string {
	if w.requests[0].op != 0 || w.answers[0].op != 0 {
		return ""
	}
	for k := range w.looks {
		if l := w.looks[k]; l.phase != idle {
			return ""
		}
	}
	for i, kind := range b.users {
		u := w.users[i]
		if u.phase != watching || w.objects[u.object].isFired {
			continue
		}
		switch isAsSeen := w.exists == (kind == WatchData) && (kind == WatchExists || u.zxid == w.zxid); {
		case !isAsSeen:
			return fmt.Sprintf("user %d was not told of a change", i)
		case !w.isWatched:
			return fmt.Sprintf("user %d will not be told of the next change", i)
		}
	}
	for k, o := range w.table {
		if o != noObject && w.objects[o].Users < 0 {
			return fmt.Sprintf("a watch of kind %d has %d users", k, w.objects[o].Users)
		}
	}
	return ""
}

// exploreWatches returns the number of states, and the steps to the first violation.
func exploreWatches(b watchBounds, p watchPremise) (states int, course []string) {
	type origin struct {
		from watchWorld
		step string
	}
	first := newWatchWorld(b)
	seen := map[watchWorld]origin{first: {}}
	for level := []watchWorld{first}; len(level) > 0; {
		var following []watchWorld
		for _, w := range level {
			if v := w.violation(b); v != "" {
				course = []string{v}
				for at := w; at != first; at = seen[at].from {
					course = append(course, seen[at].step)
				}
				slices.Reverse(course)
				return len(seen), course
			}
			for step, n := range w.next(b, p) {
				if _, isKnown := seen[n]; !isKnown {
					seen[n] = origin{w, step}
					following = append(following, n)
				}
			}
		}
		level = following
	}
	return len(seen), nil
}

func TestUsersOfWatchesAreTold(t *testing.T) {
	data, creation := WatchData, WatchExists
	for name, e := range map[string]struct {
		watchBounds
		states int
		isLong bool // not with -short, and not with the race detector
	}{
		"two for the data":     {watchBounds{users: []WatchKind{data, data}, rounds: 3, changes: 2, looks: 1, exists: true}, 61122, false},
		"two for the creation": {watchBounds{users: []WatchKind{creation, creation}, rounds: 3, changes: 2, looks: 1}, 17343, false},
		"one for each":         {watchBounds{users: []WatchKind{data, creation}, rounds: 3, changes: 2, looks: 1}, 49198, false},
		"three for the data":   {watchBounds{users: []WatchKind{data, data, data}, rounds: 3, changes: 2, exists: true}, 34307, false},
		"a lost connection":    {watchBounds{users: []WatchKind{data, creation}, rounds: 3, changes: 2, looks: 1, cuts: 1}, 185466, true},
	} {
		t.Run(name, func(t *testing.T) {
			if e.isLong && (testing.Short() || testkit.IsRaced) {
				return
			}
			states, course := exploreWatches(e.watchBounds, "")
			require.Empty(t, course, strings.Join(course, "\n"))
			require.Equal(t, e.states, states, "states")
		})
	}
}

// Each key completes "it is wrong to rely on this: …".
func TestWatchExplorerFindsWrongPremises(t *testing.T) {
	data, creation := WatchData, WatchExists
	for p, b := range map[watchPremise]watchBounds{
		anyCovers:   {users: []WatchKind{data, data}, rounds: 2, changes: 1, exists: true},
		joinsAlways: {users: []WatchKind{data, data}, rounds: 2, looks: 1, exists: true},
		removesOne:  {users: []WatchKind{data, creation}, rounds: 2, changes: 1, looks: 1},
		firesOne:    {users: []WatchKind{data, creation}, rounds: 2, changes: 2, exists: true},
	} {
		t.Run(string(p), func(t *testing.T) {
			states, course := exploreWatches(b, p)
			require.NotEmpty(t, course, "not found in %d states", states)
			t.Logf("found in %d states:\n%s", states, strings.Join(course, "\n"))
		})
	}
}
