package chaos

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// grant adds a lease of a shared lock, and the life of its znode. Its token, and its number in the queue, are those of the
// znode.
func (h *History) grant(proc int, path, znode string, token, from, to int64) *Life {
	by := fmt.Sprintf("p%d%s", proc, path)
	add := func(at int64, e Event) {
		e.At, e.Wall, e.By, e.Proc, e.Path, e.Try, e.Token = at, at/ms, by, proc, path, int(token), token
		h.Events = append(h.Events, e)
	}
	add(from-10*ms, Event{What: Called})
	add(from, Event{What: Granted, Znode: znode})
	add(to-ms, Event{What: Releasing})
	add(to, Event{What: Ended, Text: recipes.ErrReleased.Error()})
	add(to+ms, Event{What: Released})
	return h.live(proc, znode, token, from-5*ms, to)
}

// live adds the life of a znode.
func (h *History) live(proc int, znode string, token, from, to int64) *Life {
	l := &Life{Path: znode, Token: token, Created: from / ms, Gone: to / ms, GoneBy: token*zxids + 1, End: Deleted, Session: int64(proc)}
	h.Lives = append(h.Lives, l)
	return l
}

func reader(number int64) string {
	return fmt.Sprintf("%s/_c_x%s%010d", readWritePath, readMarker, number)
}

func writer(number int64) string {
	return fmt.Sprintf("%s/_c_x%s%010d", readWritePath, writeMarker, number)
}

func permit(number int64) string {
	return fmt.Sprintf("%s%s/_c_x-lease-%010d", permitsPath, takenDir, number)
}

func turn(number int64) string {
	return fmt.Sprintf("%s%s/_c_x-lock-%010d", permitsPath, turnsDir, number)
}

// sharing is a history of two readers, a writer that continues as a reader, a later writer, and three permits, one of them
// taken after a wait for the turn.
func sharing() *History {
	h := &History{}
	h.grant(1, readWritePath, reader(100), 100, 1*second, 3*second)
	h.grant(2, readWritePath, reader(101), 101, 1*second, 2*second)
	h.grant(3, readWritePath, writer(102), 102, 3*second+ms*10, 5*second)
	h.downgrade(3, 102, 150, 4*second, 6*second)
	h.grant(4, readWritePath, writer(103), 103, 6*second+ms*10, 7*second)
	for i := range int64(3) {
		h.grant(int(1+i), permitsPath, permit(200+i), 200+i, 10*second, (12+i)*second)
	}
	h.live(4, turn(203), 203, 11*second, 12*second+30*ms)
	h.grant(4, permitsPath, permit(204), 204, 12*second+20*ms, 16*second)
	return h
}

// downgrade adds a read lock under the write lock: it has the number and the token of the writer, and a znode of its own.
func (h *History) downgrade(proc int, number, czxid, from, to int64) {
	h.grant(proc, readWritePath, reader(number), czxid, from, to)
	for i := range h.Events {
		if e := &h.Events[i]; e.Token == czxid {
			e.Token = number
			if e.What == Granted {
				e.Text = underWriter
			}
		}
	}
}

func TestCheckersAcceptSharedLocks(t *testing.T) {
	v := Judge(sharing())
	require.Empty(t, v.Violations)
	require.Equal(t, map[string]int{readWritePath: 5, permitsPath: 4}, v.Leases)
	require.Empty(t, Linearize(sharing()))
}

// of returns an event of an attempt. The number of each event is the transaction of its znode.
func (h *History) of(what What, try int64) *Event {
	for i := range h.Events {
		if h.Events[i].What == what && int64(h.Events[i].Try) == try {
			return &h.Events[i]
		}
	}
	return nil
}

func (h *History) life(token int64) *Life {
	for _, l := range h.Lives {
		if l.Token == token {
			return l
		}
	}
	return nil
}

// Each violated rule of the shared locks is reported.
func TestCheckersFindDefectsOfSharedLocks(t *testing.T) {
	for name, tt := range map[string]struct {
		plant func(*History)
		want  string
	}{
		"a reader that ends late": {
			func(h *History) { h.of(Ended, 100).At += second / 2; h.of(Releasing, 100).At += second / 2 },
			"holds the write lock beside",
		},
		"a writer that ends late": {
			func(h *History) {
				h.of(Ended, 103).At += 4 * second
				h.grant(1, readWritePath, reader(104), 104, 8*second, 9*second)
			},
			"holds the read lock beside",
		},
		"a reader under a writer that ends late": {
			func(h *History) { h.of(Ended, 150).At += second / 2; h.of(Releasing, 150).At += second / 2 },
			"holds the write lock beside",
		},
		"a reader that overtakes a writer": {
			func(h *History) { h.grant(1, readWritePath, reader(110), 110, 6*second+500*ms, 6*second+600*ms) },
			"while znode 103 is ahead",
		},
		"a writer while a reader is ahead at the servers": {
			func(h *History) { h.life(100).Gone += 1000 }, "while znode 100 is ahead",
		},
		"a writer that gets in after the downgrade": {
			func(h *History) { h.life(150).Gone += 1000 }, "while znode 150 is ahead",
		},
		"a read lock under nobody": {
			func(h *History) { h.of(Granted, 150).Text = "" }, "do not tell",
		},
		"a reader that is first and is not told": {
			func(h *History) { h.live(1, reader(120), 120, 20*second, 40*second) }, "was not told",
		},
		"a reader behind a reader that is not told": {
			func(h *History) {
				h.grant(2, readWritePath, reader(120), 120, 20*second, 60*second)
				h.live(1, reader(121), 121, 21*second, 40*second)
			}, "was not told",
		},
		"a context that never ends": {
			func(h *History) { h.of(Ended, 101).What = "forgotten" }, "has not ended",
		},
		"a permit too many, by the contexts": {
			func(h *History) { h.of(Ended, 200).At += second; h.of(Releasing, 200).At += second }, "4 permits are held, the limit is 3",
		},
		"a permit too many, at the servers": {
			func(h *History) { h.life(200).Gone += 1000 }, "while 3 permits are ahead",
		},
		"a permit that never ends": {
			func(h *History) { h.of(Ended, 204).What = "forgotten" }, "has not ended",
		},
		"a turn in which all permits are free, and none is taken": {
			func(h *History) { h.live(1, turn(300), 300, 20*second, 30*second) }, "was not told",
		},
		"a turn that is not told": {
			func(h *History) {
				h.live(2, turn(299), 299, 18*second, 20*second)
				h.live(1, turn(300), 300, 19*second, 30*second)
			}, "was not told",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := sharing()
			tt.plant(h)
			require.Contains(t, fmt.Sprint(Judge(h).Violations), tt.want)
		})
	}
}

// Readers share, a turn waits while a permit is taken, and a fault excuses what a process could not know.
func TestCheckersLeaveSharedLocksBe(t *testing.T) {
	for name, plant := range map[string]func(*History){
		"a turn that waits while a permit is taken": func(h *History) {
			h.grant(1, permitsPath, permit(300), 300, 20*second, 40*second)
			h.live(2, turn(301), 301, 21*second, 40*second)
		},
		"a writer that waits for a reader": func(h *History) {
			h.grant(1, readWritePath, reader(300), 300, 20*second, 40*second)
			h.live(2, writer(301), 301, 21*second, 40*second)
		},
		"a permit of a process that was paused": func(h *History) {
			h.of(Ended, 200).At += second
			h.of(Releasing, 200).At += second
			h.Faults = []Fault{{Kind: pauseClient, Proc: 1, From: 11 * second, To: 13 * second}}
		},
		"a reader of a process that was paused": func(h *History) {
			h.of(Ended, 100).At += second / 2
			h.of(Releasing, 100).At += second / 2
			h.Faults = []Fault{{Kind: pauseClient, Proc: 1, From: 2 * second, To: 4 * second}}
		},
		"a reader with the number of a writer of before": func(h *History) { // the directory was made anew
			h.grant(1, readWritePath, writer(5), 400, 20*second, 21*second).GoneBy = 401
			h.grant(1, readWritePath, writer(6), 401, 22*second, 23*second)
			h.grant(1, readWritePath, reader(5), 402, 24*second, 25*second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := sharing()
			plant(h)
			v := Judge(h)
			require.Empty(t, v.Violations)
			if len(h.Faults) > 0 {
				require.Positive(t, v.Excused[judge.Paused])
			}
			require.Zero(t, v.Nearest)
			require.Less(t, v.Quiet, time.Hour)
		})
	}
}
