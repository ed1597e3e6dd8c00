// Package model_test plays what the leader knows of a session against the figures of internal/zkutil/core/derivation.md.
package model_test

import (
	"math"
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Time is counted in parts of the session timeout T, fine enough for all that the table has.
const (
	timeout = 240
	apart   = timeout / 8     // how far apart what the client sends may be before it counts as a gap
	pings   = timeout / 10    // from one ping of the client to the next
	trusted = timeout * 2 / 3 // how long a committed write proves the session
	ends    = 4 * timeout     // of each play
)

// stop is a time in which something stands still; the zero value is none.
type stop struct{ from, long int }

func (s stop) end() int { return s.from + s.long }

// late is when something happens that is due at a moment.
func (s stop) late(at int) int {
	if s.from <= at && at < s.end() {
		return s.end()
	}
	return at
}

// play is one course of events on three machines: a client that pings, its server that keeps a list of who was active, and
// the leader that asks for that list.
type play struct {
	lists, pings int  // how far apart they are
	firstList    int  // the first ping is sent at 0
	lost         int  // which ping is missing in the lists; -1: none
	prompt       int  // pings up to this moment precede a list of the same moment, later ones follow it
	leader       stop // asks for nothing, and for a list when it resumes
	server       stop // answers pending requests, first the leader's and then the client's
	line         stop // between client and server, or of the client
}

// unproven is the longest time from the last list with the session in it to the sending of a write that is committed
// before the next list. T after that list the session expires, if the server is cut off after the commit: rounding up to
// a tick is luck.
func (p play) unproven() (worst int) {
	p.eachList(func(write, last int) { worst = max(worst, write-last) })
	return worst
}

// eachList calls do for each list but the first, with the last moment at which a write may be sent that is committed before
// it, and the last list before that has the session in it.
//
// A write may be sent until the very moment of the next list, which is lost in the cut. A write that waits until the server
// resumes is forwarded after the lists that wait with it, on the same connection.
func (p play) eachList(do func(write, last int)) {
	last, next := math.MinInt, 0
	for asked := p.firstList; asked < ends; asked += p.lists {
		asked = p.leader.late(asked) // and resumes from there
		told := p.server.late(asked)
		seen := told
		if told > asked {
			seen = p.server.from
		}
		if last > math.MinInt {
			do(seen, last)
		}
		for ; p.touch(next) < seen || p.touch(next) == seen && seen <= p.prompt; next++ {
			if next != p.lost {
				last = told
			}
		}
	}
}

// touch is when the server notes the client's n-th ping.
func (p play) touch(n int) int { return p.server.late(p.line.late(n * p.pings)) }

// worst is that of all plays with lists so far apart: for each phase of the two, each moment at which something may begin,
// and each list before it from which on pings of the same moment are late.
func worst(lists int, vary func(p play, at int) play) (unproven int) {
	eachPlay(lists, apart, vary, func(p play) { unproven = max(unproven, p.unproven()) })
	return unproven
}

// worstWithPings is worst for a client that pings as often as ours.
func worstWithPings(lists int, vary func(p play, at int) play) (unproven int) {
	eachPlay(lists, pings, vary, func(p play) { unproven = max(unproven, p.unproven()) })
	return unproven
}

func eachPlay(lists, pings int, vary func(p play, at int) play, do func(play)) {
	for first := range lists {
		for at := timeout; at < timeout+pings; at++ { // later ones are the same with another phase
			for early := 0; early <= 2*pings; early += max(lists, pings/3) {
				do(vary(play{lists: lists, pings: pings, firstList: first, lost: -1, prompt: at - early}, at))
			}
		}
	}
}

func regular(p play, _ int) play { return p }

// touchLost loses a ping that arrives at the moment of a list.
func touchLost(p play, at int) play {
	if at%p.pings == 0 && (at-p.firstList)%p.lists == 0 {
		p.lost = at / p.pings
		p.prompt = at - 1
	}
	return p
}

func leaderPauses(long int) func(play, int) play {
	return func(p play, at int) play {
		p.leader = stop{at, long}
		return p
	}
}

func serverPauses(long int) func(play, int) play {
	return func(p play, at int) play {
		p.server = stop{at, long}
		return p
	}
}

func lineStalls(long int) func(play, int) play {
	return func(p play, at int) play {
		p.line = stop{at, long}
		return p
	}
}

// atMost is the longest pause after which a write still proves 2T/3.
func atMost(lists int, pauses func(long int) func(play, int) play) int {
	long := 0
	for step := timeout / 4; step > 0; step /= 2 {
		for long+step < timeout && worst(lists, pauses(long+step)) <= timeout-trusted {
			long += step
		}
	}
	return long
}

var row = regexp.MustCompile(`(?m)^\| (\d+) \| ([\d.]+) T \| ([\d.]+) T \| ([\d.]+) T \| ([\d.]+) T \|$`)

// The table says what the plays give: after a regular course, with a touch that is lost, and how long the leader, or the
// server or the line, may stand still.
func TestTableOfTheDerivation(t *testing.T) {
	text, err := os.ReadFile("../../internal/zkutil/core/derivation.md")
	require.NoError(t, err)
	rows := row.FindAllStringSubmatch(string(text), -1)
	require.Len(t, rows, 9)
	for _, row := range rows {
		t.Run(row[1]+" ticks", func(t *testing.T) {
			t.Parallel()
			ticks, err := strconv.Atoi(row[1])
			require.NoError(t, err)
			lists := timeout / (2 * ticks)
			require.Equal(t, timeout, lists*2*ticks, "whole units")
			figures := make([]float64, 4)
			for i := range figures {
				figures[i], err = strconv.ParseFloat(row[2+i], 64)
				require.NoError(t, err)
			}
			const rounding = 0.001
			inT := func(units int) float64 { return float64(units) / timeout }
			require.InDelta(t, figures[0], inT(timeout-worst(lists, regular)), rounding)
			require.InDelta(t, figures[1], inT(timeout-worstWithPings(lists, touchLost)), rounding)
			require.InDelta(t, figures[2], inT(atMost(lists, leaderPauses)), rounding)
			stalls := atMost(lists, lineStalls)
			require.InDelta(t, figures[3], inT(stalls+1), rounding, "less than that")
			require.LessOrEqual(t, stalls, atMost(lists, serverPauses), "no better for the server's")
		})
	}
}

// 2T/3 is proven with T/12 to spare, for any ticks, and with a lost touch. With pings every T/8 it would not be if T is 4
// to 4.5 ticks.
func TestRegularCourse(t *testing.T) {
	for lists := 1; lists <= timeout/4; lists++ {
		require.LessOrEqual(t, worst(lists, regular), timeout/4, "lists %d apart", lists)
		require.LessOrEqual(t, worstWithPings(lists, touchLost), 3*timeout/10)
		seldom := worst(lists, touchLost)
		unsound := 9*lists > timeout && 8*lists <= timeout
		require.Equal(t, unsound, seldom > timeout-trusted, "lists %d apart: %d", lists, seldom)
	}
}

// With the limit for writes in a gap and up to T/4 after it, nothing that stands still between the client and the lists
// makes a write prove too much.
func TestGapsAreLimited(t *testing.T) {
	for _, lists := range []int{6, 8, 15, 24, 30, 40, 48, 60} {
		for _, long := range []int{1, apart, timeout / 6, timeout / 4, timeout / 2, timeout * 6 / 10, timeout * 9 / 10} {
			for _, stops := range []func(int) func(play, int) play{lineStalls, serverPauses} {
				eachPlay(lists, apart, stops(long), func(p play) { p.requireLimited(t) })
			}
		}
	}
}

func (p play) requireLimited(t *testing.T) {
	t.Helper()
	still := p.line
	if still.long == 0 {
		still = p.server
	}
	before := (still.from - 1) / p.pings * p.pings // the last frame that was read in time
	p.eachList(func(write, last int) {
		until := write + trusted
		if still.end()-before > p.pings && write >= before && write <= still.end()+timeout/4 {
			until = min(until, before+timeout*8/9)
		}
		if until > last+timeout {
			require.Failf(t, "two holders", "%+v: a write at %d is trusted until %d, the last list was at %d", p, write, until, last)
		}
	})
}

// The formulas of the text.
func TestFormulas(t *testing.T) {
	for _, lists := range []int{1, 4, 6, 10, 11, 15, 16, 29, 30, 31, 45, 60} {
		missed := apart / lists // lists in a row that may lack the session
		require.Equal(t, lists*(1+missed), worst(lists, regular))
		require.Equal(t, lists*(1+2*(pings/lists)), worstWithPings(lists, touchLost))
		for _, long := range []int{1, 7, timeout / 12, timeout / 6} {
			require.LessOrEqual(t, worst(lists, leaderPauses(long)), lists*(1+missed)+long)
			require.LessOrEqual(t, worst(lists, lineStalls(long)), lists*(1+(long+apart)/lists))
			require.LessOrEqual(t, worst(lists, serverPauses(long)), lists+long+apart)
		}
	}
}

// Frames that are g apart, up to T/4, leave 2g unproven or T/4: a gap of T/6 is the longest that 2T/3 allows for.
func TestGapsBetweenFrames(t *testing.T) {
	for gap := 1; gap <= timeout/4; gap += 3 {
		most := 0
		for lists := 1; lists <= timeout/4; lists++ {
			for first := range lists {
				for prompt := timeout; prompt < timeout+gap; prompt++ {
					p := play{lists: lists, pings: gap, firstList: first, lost: -1, prompt: prompt}
					most = max(most, p.unproven())
				}
			}
		}
		require.Equal(t, max(timeout/4, 2*gap), most, "gap %d", gap)
	}
}
