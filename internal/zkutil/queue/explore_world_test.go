package queue

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/core"
)

// The explorer runs the decisions of waiters (positionOf, sight.next) and of grants (core.Claim) against a model of ZooKeeper, through every
// course of events within stated bounds. This file has the model of the servers, which TestModelAnswersLikeAServer compares with zktest, and
// that of the requests and watches that carry out the decisions. The latter is written again here, so a change of waiter, Session.Grant or the
// watches of a session has to be made here as well. A list, a read or a proof is one request. Every due step may happen at once or late, a
// goroutine that an event wakes included, and each server may be behind. A goroutine that an answer wakes is late only in a cast with isSlow.
//
// The model takes it for granted that waiter.await wakes a waiter whenever next chooses another step than stepWait. The model leaves out
// revocations, candidates, the wait of a try for a contender that is leaving, permits, a second znode of one create, the removal of an
// unused watch, and the close of a client. A session that ends takes its waiters with it in one step, so isOver does not occur. A request
// is executed before the end of its connection, or never, because a leader refuses writes of a session that moved.
//
// That trust is right is the subject of another explorer, in package core. Here a session that is trusted lives, and a proof makes it
// trusted.

// cast is who takes part, and within which bounds.
type cast struct {
	kinds    string // of the contenders, a letter each: writers, tries (writers that may not wait), readers, and readers under the writer before them
	sessions []int  // of the contenders
	rule     Rule
	permits  int // with which the rule is UpTo; 0: the rule is another
	joined   int // so many contenders are in the queue at first, and have to look
	faults   []fault
	most     int  // faults in one course
	isLate   bool // readers under a writer are behind the writer in the queue, by their names; otherwise ahead
	isSlow   bool // a waiter may continue late after an answer, too
	premise  premise
	reached  *reached
}

// reached has the decisions that an exploration has met.
type reached struct {
	steps    map[step]bool
	verdicts map[core.Verdict]bool
}

// premise is a wrong premise to plant (see TestExploreFindsWrongPremises).
type premise string

// fault is a kind of fault.
type fault string

const (
	reset    fault = "reset"    // a connection ends, and the client connects to a server that may be behind the events received
	distrust fault = "distrust" // nothing proves a session any longer, and the servers may end it
	remove   fault = "remove"   // a third party deletes one or two znodes, in one transaction
)

// set is a set of contenders.
type set uint8

func (s set) has(i int) bool    { return s&(1<<i) != 0 }
func (s set) with(i int) set    { return s | 1<<i }
func (s set) without(o set) set { return s &^ o }
func (s set) count() int        { return bits.OnesCount8(uint8(s)) }

func (s set) String() string {
	var letters []string
	s.each(func(i int) { letters = append(letters, letter(i)) })
	return strings.Join(letters, ", ")
}

func (s set) each(f func(i int)) { // in the order of the creates
	for ; s != 0; s &= s - 1 {
		f(bits.TrailingZeros8(uint8(s)))
	}
}

// txn is a transaction, a create or deletions. The contenders are numbered in the order of their creates.
type txn struct {
	isCreate bool
	nodes    set
}

const none = -1

// kind is a kind of request.
type kind uint8

const (
	create kind = iota // with a list behind
	list
	watchNode // reads and watches a znode
	removeOwn
	prove
)

type request struct {
	kind kind
	by   int8 // the contender for whom it is sent
	node int8 // of watchNode and removeOwn
}

// message is an answer, or the events of one transaction.
type message struct {
	request request
	isEvent bool
	nodes   set  // of a list, in the order of the queue; of events, the deleted znodes
	isFound bool // answers of watchNode
	isEnded bool // the session expired
	at      int8 // how many transactions the server had applied
}

// conn is a session with its connection. A pair of servers and clients has two queues, in which nothing overtakes.
type conn struct {
	epoch     int8
	at        int8 // how many transactions the server applied
	seen      int8 // by answers; the client connects to no server behind
	isTrusted bool
	isExpired bool // at the servers
	isLost    bool // and the client knows
	up        []request
	down      []message
	watched   set // at the server
	standing  set // watches of the session that did not fire
	firsts    set // those of them, or asked for, on a hold that was granted as the first (Session.IsFirst)
}

// watch is a watch as a waiter sees it.
type watch struct {
	isAsked  bool // the request has no answer yet
	isSet    bool
	isGone   bool // fired because the znode was deleted
	isLost   bool // fired because the connection ended
	wasFirst bool
}

func (w watch) hasFired() bool { return w.isGone || w.isLost }

func (w watch) seen() seen {
	switch {
	case !w.isSet:
		return unwatched
	case w.isGone:
		return gone
	case w.isLost:
		return changed
	default:
		return standing
	}
}

type phase uint8

const (
	absent   phase = iota
	listing        // or creating, with the list behind
	watching       // a request for a watch on the blocker is under way
	waiting        // for an event
	claiming       // it is the waiter's turn
	proving
	holding
	done
)

// contender is one waiter and its hold.
type contender struct {
	phase     phase
	epoch     int8 // when the queue was read
	isListed  bool
	position  position
	blocker   int8
	isMissing bool  // there was no such znode to watch
	blockers  watch // on the blocker
	own       watch // on the own znode
	isUnread  bool  // the own znode has to be read with the next list
	isJoining bool  // a reader under a writer, until a list with the writer's znode
	isFirst   bool  // of a hold
	isDeleted bool  // an event or a read has said so
	isAwake   bool  // the answers are here, but the goroutine did not run yet
}

type world struct {
	*cast
	log        []txn
	conns      [4]conn
	contenders [4]contender
	spent      int // faults
	wrong      string
}

func start(c *cast) *world {
	if c.reached == nil {
		c.reached = &reached{map[step]bool{}, map[core.Verdict]bool{}}
	}
	w := &world{cast: c}
	for i := range c.joined {
		w.log = append(w.log, txn{isCreate: true, nodes: set(0).with(i)})
	}
	for s := range w.conns {
		w.conns[s] = conn{at: int8(c.joined), seen: int8(c.joined), isTrusted: true}
	}
	for i := range w.contenders {
		w.contenders[i].blocker = none
		if i < c.joined {
			w.list(i)
		}
	}
	return w
}

func (w *world) clone() *world {
	next := *w
	next.log = append([]txn(nil), w.log...)
	for s := range next.conns {
		c := &next.conns[s]
		c.up, c.down = append([]request(nil), c.up...), append([]message(nil), c.down...)
	}
	return &next
}

func (w *world) connOf(i int) *conn { return &w.conns[w.sessions[i]] }

// tree returns the znodes after so many transactions.
func (w *world) tree(at int8) (nodes set) {
	for _, t := range w.log[:at] {
		if t.isCreate {
			nodes |= t.nodes
		} else {
			nodes &^= t.nodes
		}
	}
	return nodes
}

// deletedAt returns the number of the transaction that deleted a znode, and none if it exists.
func (w *world) deletedAt(i int) int {
	for n, t := range w.log {
		if !t.isCreate && t.nodes.has(i) {
			return n
		}
	}
	return none
}

func (w *world) isCreated(i int) bool {
	return slices.ContainsFunc(w.log, func(t txn) bool { return t.isCreate && t.nodes.has(i) })
}

// order returns the numbers of all contenders by their creates, deleted ones included.
func (w *world) order() (order []int) {
	for _, t := range w.log {
		if t.isCreate {
			t.nodes.each(func(i int) { order = append(order, i) })
		}
	}
	return order
}

// queueOf returns the queue of some znodes, as a list shows it, with the contenders' numbers.
func (w *world) queueOf(nodes set) (queue []Contender, who []int) {
	var names []string
	numbers := map[string]int{}
	order := w.order()
	for n, i := range order {
		marker := WriteMarker
		if !w.isWriter(i) {
			marker = ReadMarker
		}
		if w.isUnder(i) {
			n = slices.Index(order, i-1)
		}
		before := "b-"
		if w.isUnder(i) && !w.isLate {
			before = "a-"
		} else if w.isUnder(i) {
			before = "c-"
		}
		if name := fmt.Sprintf("%s%s%010d", before, marker, n); nodes.has(i) {
			names, numbers[name] = append(names, name), i
		}
	}
	queue = parseContenders(names, ReadWriteMarkers)
	for _, c := range queue {
		who = append(who, numbers[c.Name])
	}
	return queue, who
}

// isUnder reports whether a contender is a reader that acquires the lock under a write lock, that of the contender before.
func (w *world) isUnder(i int) bool { return i < len(w.kinds) && w.kinds[i] == 'u' }

func (w *world) isWriter(i int) bool { return w.kinds[i] == 'w' || w.kinds[i] == 't' }

// queue returns the queue of a contender. A writer lists always, because a reader may join ahead.
func (w *world) queue(i int) *Queue {
	rule := w.rule
	if w.premise == oneMoreFits {
		rule = UpTo(w.permits + 1)
	}
	return &Queue{Rule: rule, AlwaysList: strings.ContainsAny(w.kinds, "ru") && w.isWriter(i) && w.premise != writersNeedNoList}
}

// The servers.

// execute executes the oldest request of a session. The server has the state behind a write when it answers it (CommitProcessor).
func (w *world) execute(s int) {
	c := &w.conns[s]
	r := c.up[0]
	c.up = c.up[1:]
	if c.isExpired {
		c.down = append(c.down, message{isEnded: true})
		return
	}
	m := message{request: r}
	switch r.kind {
	case create:
		if !w.isCreated(int(r.by)) { // otherwise ErrNodeExists
			w.commit(txn{isCreate: true, nodes: set(0).with(int(r.by))})
		}
		w.applyAll(s)
		m.nodes = w.tree(c.at)
	case removeOwn:
		if w.tree(int8(len(w.log))).has(int(r.node)) {
			w.commit(txn{nodes: set(0).with(int(r.node))})
		}
		w.applyAll(s)
	case prove:
		w.applyAll(s)
		m.isFound = w.tree(c.at).has(int(r.by))
	case list:
		m.nodes = w.tree(c.at)
	case watchNode:
		if m.isFound = w.tree(c.at).has(int(r.node)); m.isFound {
			c.watched = c.watched.with(int(r.node))
		}
	}
	m.at = c.at
	c.down = append(c.down, m)
}

func (w *world) commit(t txn) { w.log = append(w.log, t) }

func (w *world) applyAll(s int) {
	for int(w.conns[s].at) < len(w.log) {
		w.applyNext(s)
	}
}

// applyNext applies the next transaction at the server of a session, and sends its events.
func (w *world) applyNext(s int) {
	c := &w.conns[s]
	t := w.log[c.at]
	c.at++
	if fired := t.nodes & c.watched; !t.isCreate && fired != 0 {
		c.watched &^= fired
		c.down = append(c.down, message{isEvent: true, nodes: fired, at: c.at})
	}
}

// expire ends a session. The deletions of all its znodes are one transaction.
func (w *world) expire(s int) {
	w.conns[s].isExpired = true
	var own set
	for i := range w.sessions {
		if w.sessions[i] == s {
			own = own.with(i)
		}
	}
	if own &= w.tree(int8(len(w.log))); own != 0 {
		w.commit(txn{nodes: own})
	}
}

// The client.

func (w *world) send(i int, k kind, node int) {
	c := w.connOf(i)
	c.up = append(c.up, request{kind: k, by: int8(i), node: int8(node)})
}

// sight is waiter.sight.
func (w *world) sight(i int) sight {
	c := &w.contenders[i]
	s := sight{
		isListed: c.isListed, position: c.position, hasBlocker: c.blocker != none, mayWait: w.kinds[i] != 't', isReconnected: c.epoch != w.connOf(i).epoch,
		blocker: c.blockers.seen(), wasFirst: c.blockers.wasFirst || w.premise == allAreFirst, own: c.own.seen(),
	}
	if c.isMissing { // and so there is no watch that could have noted a hold
		s.blocker, s.wasFirst = gone, w.premise == allAreFirst
	}
	switch {
	case w.premise == ignoresOwn, w.premise == ignoresOwnEvent && (s.own == gone || s.own == changed):
		s.own = standing
	case w.premise == ignoresEpoch, w.premise == losesWatches:
		s.isReconnected = false
	case w.premise == polls && s.blocker == unwatched && s.hasBlocker:
		s.isListed = false
	}
	return s
}

// wake continues a waiter that has its answers, at once or late.
func (w *world) wake(i int) {
	c := &w.contenders[i]
	if c.isAwake = w.isSlow && !c.own.isAsked && !c.blockers.isAsked; !c.isAwake {
		w.goOn(i)
	}
}

// goOn takes the steps of a waiter, until it has to wait or is about to claim its turn.
func (w *world) goOn(i int) {
	c := &w.contenders[i]
	c.isAwake = false
	for !c.own.isAsked && !c.blockers.isAsked {
		next := w.sight(i).next()
		w.reached.steps[next] = true
		switch next {
		case stepList:
			w.list(i)
			return
		case stepWatch:
			w.watchBlocker(i)
		case stepWatchAgain:
			c.position.turn, c.own, c.epoch = turnAtListing, watch{}, w.connOf(i).epoch
			w.watchBlocker(i)
		case stepReadOwn:
			c.phase = waiting
			w.watchOwn(i)
		case stepWait:
			c.phase = waiting
			return
		case stepClaim:
			c.phase = claiming
			return
		case stepRefuse:
			w.lose(i)
			return
		}
	}
}

// list is waiter.list.
func (w *world) list(i int) {
	c := &w.contenders[i]
	if c.isUnread || c.own.isSet && (c.own.hasFired() || c.epoch != w.connOf(i).epoch) {
		c.own, c.isUnread = watch{isAsked: true}, true
		w.send(i, watchNode, i)
	}
	c.phase, c.isListed, c.blocker, c.isMissing, c.blockers, c.epoch = listing, false, none, false, watch{}, w.connOf(i).epoch
	w.send(i, list, none)
}

// onList is waiter.refresh with the answer.
func (w *world) onList(i int, nodes set) {
	c := &w.contenders[i]
	if !nodes.has(i) {
		w.lose(i)
		return
	}
	queue, who := w.queueOf(nodes)
	position, blocker := w.queue(i).positionOf(queue, slices.Index(who, i))
	if w.premise == neverLists && blocker >= 0 {
		position.turn = turnAfterBlocker
	}
	c.isListed, c.position = true, position
	if blocker >= 0 {
		c.blocker = int8(who[blocker])
	}
	w.wake(i)
}

// watchBlocker is waiter.watchBlocker. The own znode is read right behind the only blocker.
func (w *world) watchBlocker(i int) {
	c := &w.contenders[i]
	c.phase = watching
	c.blockers = w.watch(i, int(c.blocker))
	if c.position.hasOnlyBlocker() && w.sight(i).own != standing {
		c.own = w.watch(i, i)
	}
}

// watch watches a znode, with a request unless the session has the watch.
func (w *world) watch(i, node int) watch {
	conn := w.connOf(i)
	if o := &w.contenders[node]; o.phase == holding && o.isFirst && w.sessions[node] == w.sessions[i] {
		conn.firsts = conn.firsts.with(node)
	}
	found := watch{isSet: conn.standing.has(node), wasFirst: conn.firsts.has(node)}
	if found.isAsked = !found.isSet; found.isAsked {
		w.send(i, watchNode, node)
	}
	return found
}

// watchOwn is waiter.watchOwnNode, and the watch of a hold.
func (w *world) watchOwn(i int) {
	c := &w.contenders[i]
	c.own = w.watch(i, i)
}

// claim is Session.Grant.
func (w *world) claim(i int) {
	c, conn := &w.contenders[i], w.connOf(i)
	claim := core.Claim{Epoch: uint64(c.epoch), IsDeleted: c.isDeleted || c.own.isGone, HasChanged: c.own.isLost}
	isTrusted := conn.isTrusted
	switch w.premise {
	case ignoresOwnEvent:
		claim.IsDeleted = c.isDeleted
	case ignoresEpoch:
		claim.Epoch, claim.HasChanged = uint64(conn.epoch), false
	case ignoresTrust:
		isTrusted = true
	}
	verdict := claim.Decide(core.Running, 0, uint64(conn.epoch), isTrusted)
	w.reached.verdicts[verdict] = true
	switch verdict {
	case core.Granted:
		w.grant(i)
	case core.Unproven:
		c.phase = proving
		w.send(i, prove, none)
	case core.Stale:
		c.isListed = false
		w.goOn(i)
	default:
		w.lose(i)
	}
}

func (w *world) grant(i int) {
	c, conn := &w.contenders[i], w.connOf(i)
	c.phase, c.isFirst, c.blocker, c.blockers = holding, w.sight(i).isFirst(), none, watch{}
	if c.isFirst { // noteFirstLocked
		for o := range w.sessions {
			b := &w.contenders[o].blockers
			if w.sessions[o] == w.sessions[i] && w.contenders[o].blocker == int8(i) && (b.isSet || b.isAsked) && !b.hasFired() {
				b.wasFirst = true
				conn.firsts = conn.firsts.with(i)
			}
		}
		if conn.standing.has(i) {
			conn.firsts = conn.firsts.with(i)
		}
	}
	w.judge(i)
}

// lose ends a wait or a hold, and deletes the znode if it may exist.
func (w *world) lose(i int) {
	c := &w.contenders[i]
	if !c.isDeleted && !w.connOf(i).isLost {
		w.send(i, removeOwn, i)
	}
	*c = contender{phase: done, blocker: none}
}

// take takes a message from the server, of events those of one znode.
func (w *world) take(s, node int) {
	c := &w.conns[s]
	m := &c.down[0]
	if m.isEvent {
		if m.nodes = m.nodes.without(set(0).with(node)); m.nodes == 0 {
			c.down = c.down[1:]
		}
		w.onDeleted(s, node)
		return
	}
	answer := *m
	c.down = c.down[1:]
	if answer.isEnded {
		w.onLost(s)
		return
	}
	c.seen = max(c.seen, answer.at)
	w.onAnswer(int(answer.request.by), answer)
}

func (w *world) onAnswer(i int, m message) {
	c := &w.contenders[i]
	switch {
	case m.request.kind == watchNode:
		w.onNode(i, int(m.request.node), m.isFound)
	case m.request.kind == prove:
		w.onProof(i, m.isFound)
	case m.request.kind == removeOwn || c.phase != listing || c.isAwake:
	case m.request.kind == create && w.isUnder(i): // joinUnder
		if c.isUnread, c.isJoining = true, false; m.nodes.has(i-1) || w.premise == outerStays {
			w.list(i)
		} else {
			w.lose(i)
		}
	default:
		w.onList(i, m.nodes)
	}
}

// onNode is the answer to a read.
func (w *world) onNode(i, node int, isFound bool) {
	c, conn := &w.contenders[i], w.connOf(i)
	if isFound {
		conn.standing = conn.standing.with(node)
	}
	if node == i {
		c.own.isAsked, c.own.isSet, c.isUnread = false, isFound, false
		c.isDeleted = c.isDeleted || !isFound
	}
	if int8(node) == c.blocker {
		c.blockers.isAsked, c.blockers.isSet, c.isMissing = false, isFound, !isFound
	}
	switch {
	case c.isDeleted && c.phase <= holding && !c.blockers.isAsked:
		w.lose(i)
	case c.phase == watching || c.phase == waiting:
		w.wake(i)
	}
}

// onProof is the answer to a proof, which all grants of the session share.
func (w *world) onProof(i int, isFound bool) {
	w.connOf(i).isTrusted = true
	if c := &w.contenders[i]; c.phase == proving && !isFound {
		c.isDeleted = true
	}
	for o := range w.sessions {
		if w.contenders[o].phase == proving && w.sessions[o] == w.sessions[i] {
			w.contenders[o].phase = claiming
		}
	}
}

// onDeleted is an event. It fires the session's watches, and ends a hold.
func (w *world) onDeleted(s, node int) {
	conn := &w.conns[s]
	conn.standing, conn.firsts = conn.standing.without(set(0).with(node)), conn.firsts.without(set(0).with(node))
	for i := range w.sessions {
		c := &w.contenders[i]
		if w.sessions[i] != s {
			continue
		}
		if int8(node) == c.blocker && c.blockers.isSet && !c.blockers.isLost {
			c.blockers.isGone = true
		}
		if node == i && c.phase == holding {
			c.isDeleted = true
			w.lose(i)
		} else if node == i && c.own.isSet && !c.own.isLost {
			c.own.isGone = true
		}
	}
}

// onLost ends all that a session has.
func (w *world) onLost(s int) {
	c := &w.conns[s]
	c.isLost, c.up, c.down = true, nil, nil
	for i := range w.sessions {
		if w.sessions[i] == s {
			w.lose(i)
		}
	}
}

// reset ends a connection, and with it all watches (loseLocked). The next server is not behind an answer, but may be behind an event.
// Unanswered requests of waiters are sent again.
func (w *world) reset(s int, at int8) {
	c := &w.conns[s]
	c.epoch++
	c.at, c.up, c.down, c.watched, c.standing, c.firsts = at, nil, nil, 0, 0, 0
	if c.isExpired {
		c.down = append(c.down, message{isEnded: true})
		return
	}
	for i := range w.sessions {
		if o := &w.contenders[i]; w.sessions[i] == s && w.premise != losesWatches {
			o.own.isLost = o.own.isLost || o.own.isSet && !o.own.isGone
			o.blockers.isLost = o.blockers.isLost || o.blockers.isSet && !o.blockers.isGone
		}
	}
	for i := range w.sessions {
		if w.sessions[i] == s {
			w.repeat(i)
		}
	}
}

// repeat sends again what has no answer, and lets a waiter notice the new connection.
func (w *world) repeat(i int) {
	c := &w.contenders[i]
	if c.isAwake {
		return
	}
	switch c.phase {
	case listing: // session.Repeat of refresh
		if c.isJoining || !w.isCreated(i) { // a search by the uuid finds nothing, so the create is sent again (see lost_answers_test.go)
			w.send(i, create, i)
			c.epoch = w.connOf(i).epoch
			return
		}
		if c.own.isAsked {
			c.own = watch{}
		}
		w.list(i)
	case watching: // session.Repeat of watchBlocker
		if c.own.isAsked {
			c.own = watch{}
		}
		w.watchBlocker(i)
	case waiting:
		if c.own.isAsked {
			c.own = w.watch(i, i)
		}
	case proving:
		w.send(i, prove, none)
	case holding: // the session watches the znode again, at any time
		c.own = watch{}
	case done:
		if w.tree(int8(len(w.log))).has(i) {
			w.send(i, removeOwn, i)
		}
	case absent, claiming:
	}
}

// distrust ends the trust in a session, and with it its holds.
func (w *world) distrust(s int) {
	w.conns[s].isTrusted = false
	for i := range w.sessions {
		if w.sessions[i] == s && w.contenders[i].phase == holding {
			w.lose(i)
		}
	}
}

// judge looks for a violation at a grant.
func (w *world) judge(i int) {
	switch exists := w.tree(int8(len(w.log))).has(i); {
	case w.connOf(i).isExpired:
		w.wrong = letter(i) + " is granted after its session has expired"
	case exists && w.permits > 0 && w.countHolders() > w.permits:
		w.wrong = letter(i) + " is granted beyond the permits"
	case exists && w.heldBeside(i) != none:
		w.wrong = letter(i) + " is granted while " + letter(w.heldBeside(i)) + " holds"
	case w.existsAhead(i) != none:
		w.wrong = letter(i) + " is granted while " + letter(w.existsAhead(i)) + " exists"
	case !exists && w.deletedLater(i) != none:
		w.wrong = letter(i) + " is granted, whose znode was deleted before that of " + letter(w.deletedLater(i))
	case exists && w.contenders[i].isFirst && !w.isFirst(i):
		w.wrong = letter(i) + " is granted as the first, while another is ahead"
	}
}

// excludes reports whether the contender ahead keeps the other out.
func (w *world) excludes(ahead, behind Contender) bool {
	return w.rule([]Contender{ahead, behind}, 1) == 0
}

// countHolders returns how many holders have a znode that exists.
func (w *world) countHolders() (n int) {
	_, who := w.queueOf(w.tree(int8(len(w.log))))
	for _, o := range who {
		if w.contenders[o].phase == holding {
			n++
		}
	}
	return n
}

// heldBeside returns a holder whose znode exists and that excludes i, or that i excludes.
func (w *world) heldBeside(i int) int {
	queue, who := w.queueOf(w.tree(int8(len(w.log))))
	own := slices.Index(who, i)
	for n, o := range who {
		if n != own && w.contenders[o].phase == holding && w.excludes(queue[min(n, own)], queue[max(n, own)]) {
			return o
		}
	}
	return none
}

// existsAhead returns a contender that exists and keeps i out. A reader that was created under a writer whose znode was deleted does
// not count, because its owner finds out, and never holds (joinUnder).
func (w *world) existsAhead(i int) int {
	queue, who := w.queueOf(w.rightful().with(i))
	if b := w.rule(queue, slices.Index(who, i)); b >= 0 {
		return who[b]
	}
	return none
}

// isFirst reports whether only contenders with the same number are ahead of i. A reader may be overtaken by one that is created under the
// writer ahead. Nobody relies on the contrary, because whoever waits for readers lists always.
func (w *world) isFirst(i int) bool {
	nodes := w.rightful()
	for o := range w.sessions {
		if w.isUnder(o) && !w.isWriter(i) {
			nodes = nodes.without(set(0).with(o))
		}
	}
	queue, who := w.queueOf(nodes.with(i))
	return queue[0].HasNumberOf(queue[slices.Index(who, i)])
}

// rightful returns the znodes that exist, without those of existsAhead that do not count.
func (w *world) rightful() set {
	nodes := w.tree(int8(len(w.log)))
	for o := range w.sessions {
		if w.isCreatedAlone(o) {
			nodes = nodes.without(set(0).with(o))
		}
	}
	return nodes
}

// deletedLater returns a contender that excluded i and was deleted after i. A znode that a third party deletes protects no hold, whenever
// the hold ends. But no contender is granted that was out before its turn. As in existsAhead, a reader that never holds does not count.
func (w *world) deletedLater(i int) int {
	queue, who := w.queueOf(^set(0))
	own := slices.Index(who, i)
	for n := range own {
		if o := who[n]; w.excludes(queue[n], queue[own]) && w.deletedAt(o) > w.deletedAt(i) && !w.isCreatedAlone(o) {
			return o
		}
	}
	return none
}

// isCreatedAlone reports whether i is a reader under a writer, and was created after the writer's znode was deleted.
func (w *world) isCreatedAlone(i int) bool {
	if !w.isUnder(i) {
		return false
	}
	createdAt := slices.IndexFunc(w.log, func(t txn) bool { return t.isCreate && t.nodes.has(i) })
	outerDeletedAt := w.deletedAt(i - 1)
	return createdAt > outerDeletedAt && outerDeletedAt != none
}
