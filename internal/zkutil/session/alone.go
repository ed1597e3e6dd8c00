package session

import (
	"context"
	"maps"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Most locks are wanted by one session for a while. There a new contender need not list its directory to know that it is the first:
// the server has numbered it right behind the session's contender before it, and that one is gone.
//
// A server numbers the children of a directory by a counter, which every create of a child raises by one, also of one that gets no
// number. A deletion does not. So a new contender of number n is the first of its queue if all of this is known:
//
//  1. The session had a contender of number n−1 in this directory. So nobody has created a child in between.
//  2. When that was first, nobody of the same queue was ahead of it: by a list behind its create, or by this same argument.
//  3. It is gone.
//  4. It was in the same directory, and not in one of the same name that was deleted since, where numbers begin anew: a watch on
//     the directory stood before its create was sent, and has not fired by the answer to the create of n. An own connection tells
//     of an event before the answers to later requests. When it is replaced, everything here is forgotten.
//
// Servers from 3.8.4 on keep an event from a session that may not read the znode any more (ZOOKEEPER-4799). So what is remembered
// counts for a session timeout T only, and T has to pass between taking READ on a directory away and replacing it.
//
// Without the list a guess that is wrong costs a round trip. So the session guesses only behind enoughAlone contenders in a row.

const (
	// enoughAlone is behind how many contenders, each with the number before and nobody ahead, a session leaves out the list. The
	// first in the row is not counted.
	enoughAlone = 3
	// maxAlone bounds the directories of which a session remembers its latest contender. Half of them may have a watch, which
	// stands until it fires.
	maxAlone = 1024
)

// alone is what a session remembers of a directory where its latest contender was the first.
type alone struct {
	prefix string // of the contender: those with the same one are in the same queue
	path   string
	number int64
	at     time.Time // when it was the first
	before *Watch    // on the directory, from before the create of that contender was sent; nil: there was none
	inARow int       // contenders before it, each with the number before

	isWatched bool   // watch was asked for
	watch     *Watch // on the directory; nil: none stands yet
}

// aloneIn remembers the latest contenders of a session that were the first in their directories. Guarded by Session.mu.
type aloneIn struct {
	dirs    map[string]*alone
	watches int // how many of dirs are watched
}

// clear forgets everything, with all watches.
func (m *aloneIn) clear() {
	clear(m.dirs)
	m.watches = 0
}

// forget forgets a directory, because its watch has fired.
func (m *aloneIn) forget(dir string) {
	if a := m.dirs[dir]; a != nil && a.isWatched {
		delete(m.dirs, dir)
		m.watches--
	}
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

// mayBeAlone is asked before the create of a contender. It returns the watch that stands on the directory, nil if there is none, and
// whether the contender is likely to be numbered right behind one of ours that is gone.
func (s *Session) mayBeAlone(dir, prefix string) (before *Watch, isLikely bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.alone.dirs[dir]
	if a == nil {
		return nil, false
	}
	return a.watch, a.inARow >= enoughAlone && s.isProvenLocked(a, prefix)
}

// isProvenLocked reports whether the next number is that of the first of a queue. A znode that budget does not know was counted
// there before NoteFirst, and is gone.
func (s *Session) isProvenLocked(a *alone, prefix string) bool {
	isFresh := s.clock.now().Sub(a.at) < s.live.timeout
	return a.watch != nil && a.watch == a.before && a.prefix == prefix && isFresh && s.budget.isGone(a.path)
}

// isAlone reports whether a contender was the first of its queue when it was created: see the top of this file. before is the watch
// that stood before its create was sent.
func (s *Session) isAlone(dir, prefix, path string, before *Watch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.alone.dirs[dir]
	if a == nil {
		return false
	}
	number, isNumbered := zkutil.NumberOf(path)
	isNext := isNumbered && number == a.number+1
	if !isNext {
		a.inARow = 0
	}
	return isNext && a.watch == before && s.isProvenLocked(a, prefix)
}

// NoteFirst notes that a contender was the first of its queue when it joined. prefix and before are those of its create.
func (s *Session) NoteFirst(dir, prefix, path string, before *Watch) {
	number, isNumbered := zkutil.NumberOf(path)
	if s.wire == nil || !isNumbered {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.alone.dirs[dir]
	if a == nil {
		a = s.alone.add(dir)
	}
	if a.number+1 == number && a.prefix == prefix {
		a.inARow++
	} else {
		a.inARow = 0
	}
	a.prefix, a.path, a.number, a.at, a.before = prefix, path, number, s.clock.now(), before
	if a.inARow >= enoughAlone-1 && !a.isWatched && s.alone.watches < maxAlone/2 {
		a.isWatched = true
		s.alone.watches++
		s.backgroundLocked(func(ctx context.Context) { s.watchAlone(ctx, dir, a) })
	}
}

// watchAlone sets the watch on a directory, by a read: so the session may read the directory, and gets its events. Where that fails the
// session goes on with lists, and tries again after enoughAlone more.
func (s *Session) watchAlone(ctx context.Context, dir string, a *alone) {
	watch, err := s.Watch(ctx, dir)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.alone.dirs[dir] != a {
		return // the watch has fired since, or the connection was replaced
	}
	if err != nil {
		s.alone.forget(dir)
		return
	}
	a.watch = watch
}

// isGone reports whether a znode of ours, which was counted once, is known to be gone.
func (b *budget) isGone(path string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.nodes[path] == nil
}
