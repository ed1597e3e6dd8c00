package core

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
)

// kind is a kind of step of a course.
type kind string

// The steps. Faults count; the application's writes have a bound of their own; the others end what a fault began, at any time.
const (
	pass  kind = "pass"
	write kind = "write" // the application commits something
	turn  kind = "turn"  // the lock is free

	closeClient kind = "close"  // the client closes while a function runs under the hold
	leaveLock   kind = "leave"  // that function releases the lock
	endWork     kind = "return" // it returns

	stall          kind = "stall"          // nothing passes on the line
	deafen         kind = "deafen"         // no answer passes on the line
	pauseClient    kind = "pause"          // the client's process stands still
	pauseInWrite   kind = "pause-in-write" // the process stands still after it read the clock for a write
	slowQuorum     kind = "slow"           // the quorum commits nothing
	cutServer      kind = "cut"            // the client's server is cut off from the leader
	reset          kind = "reset"          // the connection ends
	resetStuck     kind = "reset-stuck"    // the connection ends, and the next handshake gets stuck
	resetBehind    kind = "reset-behind"   // the connection ends, and the answer to the next handshake gets stuck
	failLogin      kind = "reset-login"    // the connection ends, the login behind the next handshake fails, and the handshake after that gets stuck
	newLeader      kind = "new-leader"     // another leader is elected
	pauseLeader    kind = "pause-leader"   // the leader stands still, for T/12 at most
	free           kind = "free"           // the line passes everything again
	resume         kind = "resume"         // the process resumes, and reads first
	resumeOnTimers kind = "resume-timers"  // the process resumes, and acts on its timers first
	quick          kind = "quick"          // the quorum commits
	executeLost    kind = "execute-lost"   // a server executes a handshake whose answer is lost
	resumeLeader   kind = "resume-leader"  // the leader resumes
)

var allFaults = []kind{
	stall, deafen, pauseClient, pauseInWrite, slowQuorum, cutServer, reset, resetStuck, resetBehind, failLogin, newLeader, pauseLeader,
}

// isFault reports whether a step counts.
func (k kind) isFault() bool {
	return slices.Contains(allFaults, k)
}

// acts returns the steps that may follow. The client that the faults meet is the holder.
func (w *world) acts() (acts []kind) {
	c := &w.clients[0]
	if c.hasEnded || w.bounds.horizon > 0 && w.now >= w.began+w.bounds.horizon {
		return nil
	}
	l := w.line(0)
	isOpen := !l.isOpening && c.core.IsConnected && !c.isPaused
	may := func(k kind, isPossible bool) {
		if isPossible && (!k.isFault() || w.faults < w.bounds.most && slices.Contains(w.bounds.faults, k)) {
			acts = append(acts, k)
		}
	}
	may(pass, !w.mustResumeLeader())
	may(write, isOpen && w.writes > 0)
	may(closeClient, w.bounds.works && c.core.Phase == Running && !c.isPaused)
	may(leaveLock, w.bounds.leaves && c.isHolding() && !c.isPaused)
	may(endWork, w.bounds.works && c.hold.Works > 0 && !c.isPaused)
	may(turn, isOpen && (w.bounds.waits || w.bounds.idles || w.bounds.renews) && !w.isTurn && !c.isHolding())
	may(stall, isOpen && !l.isStuck && !l.isDeaf)
	may(deafen, isOpen && !l.isStuck && !l.isDeaf)
	may(pauseClient, !c.isPaused && !l.isOpening)
	may(pauseInWrite, isOpen && w.writes > 0)
	may(slowQuorum, !w.isSlow)
	may(cutServer, !w.servers[c.server].isCut)
	may(reset, isOpen)
	may(resetStuck, isOpen)
	may(resetBehind, isOpen)
	may(failLogin, isOpen)
	may(newLeader, !w.isPaused)
	may(pauseLeader, !w.isPaused)
	may(free, slices.ContainsFunc(w.lines, line.mayGoOn))
	may(resume, c.isPaused)
	may(resumeOnTimers, c.isPaused)
	may(quick, w.isSlow)
	may(executeLost, w.lostHandshake() != nil)
	may(resumeLeader, w.isPaused)
	return acts
}

// mayGoOn reports whether the client may still get something from a faulty line.
func (l line) mayGoOn() bool { return (l.isStuck || l.isDeaf) && (!l.isOpening || !l.isLeft) }

// mustResumeLeader bounds the pause of the leader (see derivation.md).
func (w *world) mustResumeLeader() bool {
	return w.isPaused && w.nextInstant() > w.nextList+whole/12
}

// lostHandshake returns a handshake that was given up, or whose answer is stuck, and that no server executed.
func (w *world) lostHandshake() *line {
	for i := range w.lines {
		if l := &w.lines[i]; l.isOpening && l.isStuck && !l.isExecuted {
			return l
		}
	}
	return nil
}

// apply returns the state after a step.
func (w *world) apply(k kind) *world {
	w.bounds.met.steps[k] = true
	w = w.clone()
	if k.isFault() {
		w.faults++
	}
	c, l := &w.clients[0], w.line(0)
	switch k {
	case pass:
		w.passUntil(w.nextInstant())
		return w
	case write:
		w.writes--
		w.send(0, w.premise.op())
	case turn:
		w.isTurn = true
		if !c.core.IsInUse() {
			c.use(w.time(c))
		}
	case closeClient:
		w.act(c, c.core.OnClose(w.time(c)))
	case leaveLock:
		w.end(c, End{Cause: zkutil.ErrReleased})
	case endWork:
		if c.hold.EndWork() {
			c.core.OnVacate(&c.hold)
			c.deletes = true
		}
	case stall:
		l.isStuck = true
	case deafen:
		l.isDeaf = true
	case pauseClient:
		c.isPaused = true
	case pauseInWrite:
		w.writes--
		c.isPaused = true
		w.send(0, w.premise.op())
	case slowQuorum:
		w.isSlow = true
	case cutServer:
		w.servers[c.server].isCut = true
	case reset, resetStuck, resetBehind, failLogin:
		w.disconnect(0)
		w.dialFaulty(0, w.otherServer(c), k)
	case newLeader:
		w.electLeader()
	case pauseLeader:
		w.isPaused = true
	case free:
		for i := range w.lines {
			if l := &w.lines[i]; l.mayGoOn() {
				l.isStuck, l.isDeaf = false, false
			}
		}
	case resume, resumeOnTimers:
		c.isPaused = false
		w.endSend(0)
		for isDone := k == resumeOnTimers; isDone; {
			isDone = w.runTimers(0)
		}
	case quick:
		w.isSlow = false
	case executeLost:
		l = w.lostHandshake()
		if w.executeHandshake(l); l.isExecuted && l.isLeft {
			w.close(l.id)
		}
	case resumeLeader:
		w.isPaused, w.nextList = false, max(w.nextList, w.now+1) // Leader.lead asks at once. What waited may be committed before the answer.
	}
	w.settle()
	return w
}

// passUntil lets time pass.
func (w *world) passUntil(t int64) {
	for w.now < t {
		w.now = min(w.nextInstant(), t)
		if w.nextList <= w.now && !w.isPaused {
			w.nextList += w.bounds.lists
			w.report()
		}
		w.settle()
	}
}

// nextInstant returns when something is due, or when a step may follow: at multiples of the grid, and right before and
// at a report and a ping.
func (w *world) nextInstant() int64 {
	next := (w.now/w.bounds.grid + 1) * w.bounds.grid
	consider := func(t int64) {
		if t > w.now {
			next = min(next, t)
		}
	}
	consider(w.nextList)
	consider(w.nextList - 1)
	for i := range w.clients {
		c := &w.clients[i]
		consider(w.leader[i].expiry)
		if c.isPaused || c.hasEnded {
			continue
		}
		if l := w.line(i); l.isOpening {
			consider(c.byServers(moment(l.beganAt).Add(c.core.Period())))
		} else {
			consider(c.nextPing - 1)
			consider(c.nextPing)
		}
		if !c.wakeAt.IsZero() {
			consider(c.byServers(c.wakeAt))
		}
	}
	return next
}

// violation returns what is wrong in a state, "" if nothing is.
func (w *world) violation() string {
	valid := 0
	for i := range w.clients {
		if v := cmp.Or(w.clients[i].violation(), w.stateViolation(i), w.workViolation(i), w.holdViolation(i)); v != "" {
			return v
		}
		if w.isValid(i) {
			valid++
		}
	}
	if valid > 1 {
		return "two valid holds"
	}
	return ""
}

// isValid reports whether a client has a hold that counts for it.
func (w *world) isValid(i int) bool {
	c := &w.clients[i]
	return c.isHolding() && c.core.Stands(w.time(c))
}

// holdViolation returns what is wrong with a valid hold.
func (w *world) holdViolation(i int) string {
	c := &w.clients[i]
	until := c.byServers(c.core.until)
	switch {
	case c.isHolding() && !w.isValid(i) && !c.isPaused && !c.hasEnded:
		return "a hold outlasts trust"
	case !w.isValid(i):
		return ""
	case !w.isAlive(i) || c.hold.Owner != w.leader[i].id:
		return "a valid hold of a session that has expired"
	case i == 0 && w.isFree:
		return "a valid hold without its znode"
	case w.bounds.suspends && !c.core.IsConnected:
		return "a valid hold without a connection"
	case !w.bounds.explicit && until > w.leader[i].expiry:
		return fmt.Sprintf("a cut now: the session expires %.3f T before the end of trust", float64(until-w.leader[i].expiry)/whole)
	default:
		return ""
	}
}

// stateViolation returns what is wrong with the state that a client shows.
func (w *world) stateViolation(i int) string {
	c := &w.clients[i]
	s := &c.core
	switch {
	case c.shown != s.State:
		return fmt.Sprintf("it is %v, and %v was published", s.State, c.shown)
	case (s.State == connstate.Closed) != (s.Phase >= Closing):
		return fmt.Sprintf("it is %v in phase %d", s.State, s.Phase)
	case s.State == connstate.Connected && !s.IsConnected, s.State == connstate.Suspended && s.IsConnected:
		return fmt.Sprintf("it is %v", s.State)
	case s.State == connstate.Lost && w.isValid(i):
		return "a valid hold of a lost session"
	case s.State == connstate.Connected && s.ID == 0:
		return "connected without a session"
	case s.State == connstate.Suspended && !c.isPaused && !c.hasEnded && !s.Stands(w.time(c)) && w.time(c).Sub(s.ChangedAt) >= s.Timeout()/3:
		return "an outage outlasts trust, and the state is not Lost"
	default:
		return ""
	}
}

// workViolation returns what is wrong while a function runs under a hold, which may have ended.
func (w *world) workViolation(i int) string {
	c := &w.clients[i]
	isWorking, stands := c.isOwner && c.hold.Works > 0 && !errors.Is(c.hold.Cause, zkutil.ErrReleased), c.core.Stands(w.time(c))
	switch {
	case isWorking && stands && !c.hold.IsLost() && (w.isFree || !w.isAlive(i)):
		return "work goes on in trust, and its znode is gone"
	case w.faults == 0 && !w.isFree && (isWorking || c.core.Saved() > 0) && !stands:
		return "trust ends without a fault"
	default:
		return ""
	}
}

// violation returns which of a client's facts contradict each other, "" if none do.
func (c *client) violation() string {
	isKept := c.hold.isKept && c.hold.session == c.core.sessionsOver
	switch holds, kept := boolInt(c.isHolding()), boolInt(isKept); {
	case c.core.Standing != holds || c.core.kept != kept:
		return fmt.Sprintf("%d holds stand and %d znodes are kept, and %d and %d are counted", holds, kept, c.core.Standing, c.core.kept)
	case c.core.users != c.waits+holds+boolInt(c.hold.isKept):
		return fmt.Sprintf("%d uses are counted, with %d waits, %d holds and %d kept znodes", c.core.users, c.waits, holds, kept)
	case c.isHolding() && c.hold.Owner != c.core.ID:
		return "a hold of another session"
	case c.isHolding() && c.core.Phase != Running:
		return "a hold of a client that closes"
	default:
		return ""
	}
}

// The key of a state has all facts that can still make a difference, with times relative to now.

type keyWriter struct{ b []byte }

func (k *keyWriter) int(n int64) { k.b = binary.AppendVarint(k.b, n) }

func (k *keyWriter) bools(all ...bool) {
	n := int64(0)
	for _, b := range all {
		n <<= 1
		if b {
			n |= 1
		}
	}
	k.int(n)
}

// far is the age beyond which nothing can be compared with a time.
const far = 2 * whole

func (k *keyWriter) units(now, t int64) { k.int(max(-far, min(far, t-now))) }

func (k *keyWriter) time(now int64, t time.Time) {
	if t.IsZero() {
		k.int(math.MaxInt32)
		return
	}
	k.units(now, t.UnixNano())
}

// rank replaces the numbers of connections, whose order alone counts.
func (w *world) rank(id int32) int64 {
	return int64(slices.IndexFunc(w.lines, func(l line) bool { return l.id == id }))
}

func (w *world) fingerprint() uint64 {
	k := keyWriter{make([]byte, 0, 512)}
	k.int(w.now % w.bounds.grid)
	k.units(w.now, w.nextList)
	if w.bounds.horizon > 0 {
		k.int(w.now - w.began)
	}
	k.bools(w.isPaused, w.isSlow, w.isFree)
	k.int(int64(w.faults*16 + w.writes*4 + w.holder))
	for i := range w.servers {
		k.bools(w.servers[i].isCut)
		k.int(w.servers[i].touched[0])
		k.int(w.servers[i].touched[1])
	}
	for i := range w.clients {
		w.addClient(&k, i)
	}
	for i := range w.lines {
		w.addLine(&k, &w.lines[i])
	}
	h := fnv.New64a()
	_, _ = h.Write(k.b)
	return h.Sum64()
}

func (w *world) addClient(k *keyWriter, i int) {
	c := &w.clients[i]
	now := w.clock(c)
	k.units(w.now, w.leader[i].expiry)
	k.int(w.leader[i].created)
	k.int(w.rank(w.leader[i].owner))
	k.int(now*c.rate.den - w.now*c.rate.num)
	k.bools(c.core.IsConnected, c.core.State == connstate.Lost, c.isPaused, c.isHolding(), c.hasEnded, c.core.IsInUse(), w.isTurn)
	k.int(int64(c.shown))
	k.bools(c.isClaiming, c.claim.Owner == c.core.ID, c.claim.Epoch == c.core.Epoch)
	k.bools(c.deletes, c.isOver, c.hold.isKept, c.hold.IsVacated, c.core.Phase != Running, w.leader[i].id == c.core.ID, c.hold.IsLost())
	k.int(int64(c.hold.Works))
	if w.bounds.leaves {
		k.bools(errors.Is(c.hold.Cause, zkutil.ErrReleased))
	}
	if !c.core.IsConnected {
		k.time(now, c.core.ChangedAt)
	} else {
		k.units(w.now, c.nextPing)
	}
	k.int(int64(c.server))
	k.int(int64(len(c.unsent)))
	k.time(now, c.unsentAt.Add(time.Duration(min(0, len(c.unsent)-1))*far))
	l := &c.core.Ledger
	k.int(int64(l.timeout))
	k.int(int64(l.leastTimeout))
	k.bools(l.leftServerAt.After(l.proofSentAt))
	if l.inUseSince.After(l.proofSentAt) {
		k.time(now, l.inUseSince)
	}
	if !c.isHolding() {
		k.time(now, l.proofCameAt)
	}
	for _, t := range append([]time.Time{l.until, l.proofSentAt, l.lastBeatAt, l.answeredAt}, l.beatsSentAt...) {
		k.time(now, t)
	}
	k.int(int64(l.commitTook))
	k.int(int64(l.lastTook))
}

func (w *world) addLine(k *keyWriter, l *line) {
	now := w.clock(&w.clients[l.client])
	k.int(int64(l.client*2 + l.server))
	k.bools(l.isStuck, l.isDeaf, l.isLeft, l.isOpening, l.isExecuted, l.isLoginFailing)
	k.bools(l.isNew, l.session == w.leader[l.client].id, l.session == w.clients[l.client].core.ID)
	if l.isOpening {
		k.units(now, l.beganAt)
		return
	}
	for _, part := range [][]request{l.up, l.at} {
		k.int(int64(len(part)))
	}
	k.int(int64(len(l.down)))
	for _, a := range l.down {
		k.bools(a.isCommitted)
	}
	c := &l.contact
	k.bools(c.isFresh)
	if c.isFresh {
		k.time(now, c.beganAt)
	}
	k.int(int64(c.timeout))
	k.time(now, c.sentAt)
	k.time(now, c.answeredSentAt)
	inFlight := c.inFlight.all()
	oldest := moment(now)
	for _, f := range inFlight {
		k.int(int64(f.Op)*2 + int64(boolInt(f.IsOwn)))
		k.time(now, f.SentAt)
	}
	if len(inFlight) > 0 {
		oldest = inFlight[0].SentAt
		k.time(now, c.writeAnsweredAt)
		k.time(now, c.byteAt)
	}
	for _, g := range c.gaps {
		if g.EndAt.Add(longestBetweenReports(c.timeout)).After(oldest) {
			k.bools(g.IsHandshake, g.IsLateWrite)
			k.time(now, g.StartAt)
			k.time(now, g.EndAt)
		}
	}
	k.time(now, c.lateAnswerAt)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// search is an exploration: breadth first, the states with the fewest faults first.
type search struct {
	parents map[uint64]uint64 // by fingerprint
	found   string            // the violation; "" if none
	course  string            // the course that leads to it
}

// explore visits every state of the world within the bounds, and stops at the first violation.
func explore(root *world) *search {
	s := &search{parents: map[uint64]uint64{root.fingerprint(): 0}}
	levels := make([][]*world, root.bounds.most+1)
	levels[0] = []*world{root}
	for n := range levels {
		for i := 0; i < len(levels[n]); i++ {
			w := levels[n][i]
			levels[n][i] = nil
			from := w.fingerprint()
			for _, k := range w.acts() {
				next := w.apply(k)
				to := next.fingerprint()
				if _, isKnown := s.parents[to]; isKnown {
					continue
				}
				s.parents[to] = from
				if s.found = next.violation(); s.found != "" {
					s.course = s.courseTo(root, to)
					return s
				}
				levels[next.faults] = append(levels[next.faults], next)
			}
		}
	}
	return s
}

// courseTo replays the way to a state, and returns it as a scenario.
func (s *search) courseTo(root *world, to uint64) string {
	var way []uint64
	for ; to != 0; to = s.parents[to] {
		way = append(way, to)
	}
	slices.Reverse(way)
	var lines []string
	w := root
	for _, next := range way[1:] {
		for _, k := range w.acts() {
			if after := w.apply(k); after.fingerprint() == next {
				if k != pass {
					lines = append(lines, fmt.Sprintf("%d %s", w.now-w.began, k))
				}
				w = after
				break
			}
		}
	}
	lines = append(lines, fmt.Sprintf("%d show", w.now-w.began))
	return strings.Join(lines, "\n") + "\n"
}

// exploreAll explores every phase and rate of the bounds.
func exploreAll(t *testing.T, b *bounds, p *premise) (states int, first *search) {
	t.Helper()
	for _, r := range b.rates {
		for _, phase := range b.phases {
			s := explore(start(b, p, phase, r))
			states += len(s.parents)
			if s.found != "" {
				s.course = fmt.Sprintf("# %s\n%s\n%s", s.found, b.header(phase, r), s.course)
				return states, s
			}
		}
	}
	return states, nil
}
