package chaos

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// overlap returns a history in which lease 105 ends a second late, beside the next lease, because a fault hit it. end says how
// its znode ended.
func overlap(excuse judge.Excuse, end End) (*History, *Fault) {
	h := told(10)
	h.Lives[5].End = end
	late := h.event(Ended, 105)
	h.Faults = []Fault{{Kind: string(excuse), Proc: late.Proc, Znode: fencedPath + "/znode-105", From: late.At - 2*ms, To: late.At + second}}
	late.At += second
	return h, &h.Faults[0]
}

// move moves the fault in time.
func (f *Fault) move(by int64) { f.From, f.To = f.From+by, f.To+by }

// The excuses that cover an overlap, with the ends of the znodes. A harm is an action of a third party.
var (
	harms    = map[judge.Excuse]End{judge.SessionExpired: Closed, judge.ZnodeDeleted: Robbed}
	covering = map[judge.Excuse]End{judge.Paused: Deleted, judge.SessionExpired: Closed, judge.ZnodeDeleted: Robbed}
)

func TestHolderThatCouldNotKnowIsExcused(t *testing.T) {
	for excuse, end := range covering {
		h, _ := overlap(excuse, end)
		v := Judge(h)
		require.Empty(t, v.Violations, excuse)
		require.Equal(t, 1, v.Excused[excuse])
	}
}

func TestFaultOfAnotherHolderIsNoExcuse(t *testing.T) {
	for excuse, end := range covering {
		h, fault := overlap(excuse, end)
		fault.Proc, fault.Znode = fault.Proc%4+1, "/another"
		require.NotEmpty(t, Judge(h).Violations, excuse)
	}
}

func TestLaterFaultIsNoExcuse(t *testing.T) {
	for excuse, end := range covering {
		h, fault := overlap(excuse, end)
		fault.move(2 * second)
		require.NotEmpty(t, Judge(h).Violations, excuse)
	}
}

func TestPauseLongBeforeIsNoExcuse(t *testing.T) {
	h, fault := overlap(judge.Paused, Deleted)
	fault.move(-20 * second)
	require.NotEmpty(t, Judge(h).Violations)
}

// The servers may execute a request long after it was sent.
func TestHarmRequestedLongBeforeIsAnExcuse(t *testing.T) {
	for excuse, end := range harms {
		h, fault := overlap(excuse, end)
		fault.move(-20 * second)
		require.Empty(t, Judge(h).Violations, excuse)
	}
}

func TestHarmThatHitNothingIsNoExcuse(t *testing.T) {
	for excuse := range harms {
		h, fault := overlap(excuse, Deleted)
		fault.move(-20 * second)
		require.NotEmpty(t, Judge(h).Violations, excuse)
	}
}

func TestHarmIsNoExcuseOnceTheHolderMustKnow(t *testing.T) {
	for excuse, end := range harms {
		h, fault := overlap(excuse, end)
		fault.move(-20 * second)
		h.event(Ended, 105).At += 4 * second
		require.NotEmpty(t, Judge(h).Violations, excuse)
	}
}

// deletedAndLate returns a history in which lease 105 ends more than a session timeout after the deletion of its znode.
func deletedAndLate() *History {
	h := told(10)
	h.Lives[5].End = Robbed
	late := h.event(Ended, 105)
	h.Faults = []Fault{{Kind: deleteZnode, Znode: fencedPath + "/znode-105", From: late.At - 2*ms, To: late.At + ms}}
	late.At += int64(SessionTimeout) + second
	return h
}

func TestHolderMustKnowAfterASessionTimeout(t *testing.T) {
	require.NotEmpty(t, Judge(deletedAndLate()).Violations)
}

// While the bounds are raised, a client may learn later that its znode was deleted.
func TestHolderMayKnowLaterWhileBoundsAreRaised(t *testing.T) {
	h := deletedAndLate()
	late := h.event(Ended, 105).At
	h.Faults = append(h.Faults, Fault{Kind: movedBounds, From: late - 10*second, To: late})
	require.Empty(t, Judge(h).Violations)
}

func TestExpiryBeforeTheGrantIsNoExcuse(t *testing.T) {
	h := told(10)
	h.event(Ended, 105).At += second
	before := h.event(Granted, 105).At - second
	h.Faults = []Fault{{Kind: expireSession, Proc: h.event(Ended, 105).Proc, From: before, To: before}}
	require.NotEmpty(t, Judge(h).Violations)
}

// The process's own clock tells it that it leads no longer.
func TestPauseExcusesNoClaimToLead(t *testing.T) {
	h := told(10)
	led := h.event(Led, 105)
	led.At, led.Value = led.At+2*second, led.Value+2*second
	h.Faults = []Fault{{Kind: pauseClient, Proc: led.Proc, From: led.At - second, To: led.At + second}}
	require.Contains(t, fmt.Sprint(Judge(h).Violations), "says that it leads")
}

// windsDown returns a history in which the function of lease 105 winds down after a shutdown, beside the next lease.
func windsDown(end End) *History {
	h := told(10)
	h.Lives[5].End = end
	late := h.event(Ended, 105)
	late.At, late.Text = late.At+second, byShutdown
	return h
}

func TestShutdownIsNoExcuse(t *testing.T) {
	require.NotEmpty(t, Judge(windsDown(Deleted)).Violations)
}

// The function is not notified of the expiry of its session.
func TestExpiryDuringAShutdownIsAnExcuse(t *testing.T) {
	require.Empty(t, Judge(windsDown(Expired)).Violations)
}

func TestContextThatEndsAfterTheNextGrantIsNoExcuseDuringAShutdown(t *testing.T) {
	h := windsDown(Expired)
	h.event(Releasing, 105).At = h.event(Ended, 105).At
	require.NotEmpty(t, Judge(h).Violations)
}

// outlives returns a history in which lease 105 ends a second after the next grant, and its session expires. A fault lasts until
// woken, counted from the next grant.
func outlives(kind string, woken int64) *History {
	h := told(10)
	h.Lives[5].End = Expired
	end, next := h.event(Ended, 105), h.event(Granted, 106).At
	end.Text, end.At = recipes.ErrSessionLost.Error(), next+second
	proc := end.Proc
	if kind == movedBounds || kind == slowDisks.name {
		proc = 0
	}
	h.Faults = []Fault{{Kind: kind, Proc: proc, From: next - 2*second, To: next + woken}}
	return h
}

// stop records that the process of lease 105 did not run.
func (h *History) stop(from, to int64) {
	h.Events = append(h.Events, Event{What: Starved, Proc: h.event(Ended, 105).Proc, Value: from, At: to})
	h.Starved = nil
	h.collectStarved()
}

func TestFaultsThatDoNotStopAProcessAreNoExcuse(t *testing.T) {
	for _, kind := range []string{pauseBriefly, movedBounds, slowDisks.name, "slow handshakes", loginFails} {
		require.NotEmpty(t, Judge(outlives(kind, second)).Violations, kind)
	}
}

func TestBriefPauseExcusesAGrantDuringThePause(t *testing.T) {
	h := outlives(pauseBriefly, second)
	h.stop(h.Faults[0].From, h.Faults[0].To)
	v := Judge(h)
	require.Empty(t, v.Violations)
	require.Equal(t, 1, v.Excused[judge.PausedBriefly])
}

func TestBriefPauseExcusesNoGrantAfterThePause(t *testing.T) {
	h := outlives(pauseBriefly, -second/2)
	h.stop(h.Faults[0].From, h.Faults[0].To)
	require.NotEmpty(t, Judge(h).Violations)
}

// starvedTwice returns a history in which the process of lease 105 did not run during the next grant, then ran for a time, and
// then did not run again until the end of the lease.
func starvedTwice(ran int64) *History {
	h := told(10)
	h.Lives[5].End = Expired
	end, next := h.event(Ended, 105), h.event(Granted, 106).At
	woken := next + second
	end.Text, end.At = recipes.ErrSessionLost.Error(), woken+ran+second
	h.stop(woken+ran, h.event(Ended, 105).At-100*ms)
	h.stop(next-2*second, woken)
	return h
}

func TestProcessThatRanForAMomentIsExcused(t *testing.T) {
	require.Empty(t, Judge(starvedTwice(15*ms)).Violations)
}

func TestProcessThatCouldHaveEndedTheContextIsNotExcused(t *testing.T) {
	require.NotEmpty(t, Judge(starvedTwice(200*ms)).Violations)
}

func TestProcessIsNotExcusedByAnother(t *testing.T) {
	h := starvedTwice(15 * ms)
	h.Events[len(h.Events)-1].Proc++
	h.Starved = nil
	h.collectStarved()
	require.NotEmpty(t, Judge(h).Violations)
}

// grantedLate returns a history in which the grant of lease 105 is recorded after the next one, because the process did not run,
// and the lease ends after a time.
func grantedLate(lasts int64) *History {
	h := told(10)
	next := h.event(Granted, 106).At
	granted := h.event(Granted, 105)
	granted.At = next + second
	h.event(Ended, 105).At = granted.At + lasts
	h.stop(next-1, next+second)
	return h
}

func TestGrantRecordedLateIsExcusedIfItEndsAtOnce(t *testing.T) {
	v := Judge(grantedLate(second / 10))
	require.Empty(t, v.Violations)
	require.Positive(t, v.Excused[judge.Starved])
}

func TestGrantRecordedLateIsNoExcuseForALongLease(t *testing.T) {
	require.NotEmpty(t, Judge(grantedLate(second)).Violations)
}

// A goroutine may have to wait before it records an end. After an expiry, the margin of the deadline covers that.
func TestEndRecordedLate(t *testing.T) {
	for name, tt := range map[string]struct {
		cause     string
		end       End
		isExcused bool
	}{
		"released":                         {recipes.ErrReleased.Error(), Deleted, true},
		"lost, and deleted after the end":  {recipes.ErrSessionLost.Error(), Deleted, true},
		"killed during the release":        {killClient, Deleted, true},
		"the znode was deleted":            {recipes.ErrNodeDeleted.Error(), Deleted, false},
		"lost, and the session is expired": {recipes.ErrSessionLost.Error(), Expired, false},
	} {
		h := told(10)
		h.Lives[5].End = tt.end
		ended := h.event(Ended, 105)
		ended.At, ended.Text = h.event(Granted, 106).At+20*ms, tt.cause
		require.Equal(t, tt.isExcused, len(Judge(h).Violations) == 0, name)
	}
}
