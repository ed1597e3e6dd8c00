package session

import (
	"context"
	"maps"
	"strconv"
)

// Most locks are wanted by one session for a while. There a new contender need not list its directory to know that it is the first:
// the server has numbered it right behind the session's contender before it, and that one is gone.
//
// A server numbers the children of a directory by a counter, which every create of a child raises by one, also of one that gets no
// number. A deletion does not. So a new contender of number n is the first of its queue if all of this is known:
//
//  1. The session had a contender of number n−1 in this directory. So nobody has created a child in between.
//  2. When that was first, nobody was ahead of it: by a list behind its create, or by this same argument.
//  3. It is gone.
//  4. It was in the same directory, and not in one of the same name that was deleted since, where numbers begin anew: a watch on
//     the directory stood before its create was sent, and has not fired by the answer to the create of n. The session has to be told
//     of every event, before the answers to later requests. A watch of another connection has fired.
//
// Without the list a guess that is wrong costs a round trip. So the session guesses only after enoughAlone contenders in a row.

const (
	// enoughAlone is after how many contenders in a row with nobody in between a session leaves out the list.
	enoughAlone = 3
	// maxAlone bounds the directories of which a session remembers its latest contender. Half of them may have a watch, which
	// stands until it fires.
	maxAlone = 1024
)

// alone is what a session remembers of a directory where its latest contender was the first.
type alone struct {
	path   string // of that contender
	number int64
	before *Watch // on the directory, from before the create of that contender was sent; nil: there was none
	inARow int    // contenders before it, each with the number before

	isWatched bool   // watch was asked for
	watch     *Watch // on the directory; nil: none stands yet
}

// aloneIn remembers the latest contenders of a session that were alone in their directories. Guarded by Session.mu.
type aloneIn struct {
	dirs    map[string]*alone
	watches int // how many of dirs are watched
}

// clear forgets everything, with all watches.
func (m *aloneIn) clear() {
	clear(m.dirs)
	m.watches = 0
}

// of returns what is remembered of a directory, nil for nothing.
func (m *aloneIn) of(dir string) *alone {
	a := m.dirs[dir]
	if a != nil && a.watch != nil && a.watch.HasFired() {
		delete(m.dirs, dir)
		m.watches--
		return nil
	}
	return a
}

// add returns what is to be remembered of a directory of which nothing is yet.
func (m *aloneIn) add(dir string) *alone {
	if len(m.dirs) >= maxAlone {
		maps.DeleteFunc(m.dirs, func(_ string, a *alone) bool { return !a.isWatched })
	}
	a := &alone{number: -2} // nobody is numbered behind that
	m.dirs[dir] = a
	return a
}

// startAlone returns the watch that stands on a directory before the create of a contender, nil if there is none, and whether the
// contender is likely to be numbered right behind one of ours that is gone.
func (s *Session) startAlone(dir string) (before *Watch, isLikely bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.alone.of(dir)
	if a == nil {
		return nil, false
	}
	return a.watch, a.inARow >= enoughAlone && a.isProvenLocked(s)
}

// isProvenLocked reports whether the next number is that of a contender which is alone.
func (a *alone) isProvenLocked(s *Session) bool {
	return a.watch != nil && a.watch == a.before && s.budget.isGone(a.path)
}

// isAlone reports whether a contender was the first of its queue when it was created: see the top of this file. before is the watch
// that stood before its create was sent.
func (s *Session) isAlone(dir, path string, before *Watch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.alone.of(dir)
	if a == nil {
		return false
	}
	isNext := numberOf(path) == a.number+1
	if !isNext {
		a.inARow = 0
	}
	return isNext && a.watch == before && a.isProvenLocked(s)
}

// NoteFirst notes that a contender was the first of its queue when it joined.
func (s *Session) NoteFirst(dir, path string, before *Watch) {
	number := numberOf(path)
	if s.wire == nil || number < 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.alone.of(dir)
	if a == nil {
		a = s.alone.add(dir)
	}
	if a.number+1 == number {
		a.inARow++
	} else {
		a.inARow = 0
	}
	a.path, a.number, a.before = path, number, before
	if a.inARow >= enoughAlone-1 && !a.isWatched && s.alone.watches < maxAlone/2 {
		a.isWatched = true
		s.alone.watches++
		s.backgroundLocked(func(ctx context.Context) { s.watchAlone(ctx, dir, a) })
	}
}

// watchAlone sets the watch on a directory. Where that is refused the session goes on with lists.
func (s *Session) watchAlone(ctx context.Context, dir string, a *alone) {
	watch, err := s.Watch(ctx, dir)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a.watch = watch
}

// numberOf returns the number that the server has appended to the name of a znode, −1 if that is not ten digits.
func numberOf(path string) int64 {
	if len(path) < sequenceLength {
		return -1
	}
	digits := path[len(path)-sequenceLength:]
	number, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || number < 0 || digits[0] == '+' {
		return -1
	}
	return number
}

// isGone reports whether a znode of ours is known to be gone.
func (b *budget) isGone(path string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nodes[path] == nil
}
