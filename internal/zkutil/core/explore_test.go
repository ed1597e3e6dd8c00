package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// withDefaults fills in what the tables below leave out: equal bounds, clocks and ticks of T/2.
func (b bounds) withDefaults() *bounds {
	if b.lists == 0 {
		b.lists = whole / 4
	}
	if b.phases == nil {
		b.phases = []int64{1}
	}
	if b.grants == [2]int64{} {
		b.grants = [2]int64{whole, whole}
	}
	if b.rates == nil {
		b.rates = []rate{{1, 1}}
	}
	if b.met == nil {
		b.met = newMet()
	}
	b.clients, b.grid = max(b.clients, 1), whole/24
	return &b
}

// The explorer finds every premise that was ever wrong. Each key completes "the core relies on this: …".
func TestExplorerFindsWrongPremises(t *testing.T) {
	slower, half := []rate{{8, 9}}, [2]int64{whole, whole / 2}
	for name, b := range map[string]bounds{
		wholeTimeout:      {},
		threeQuarters:     {rates: slower},
		fromAnswer:        {faults: []kind{deafen, cutServer}, most: 2, writes: 1, horizon: whole / 2},
		pingsProve:        {faults: []kind{cutServer}, most: 1, explicit: true, lone: true},
		syncProves:        {faults: []kind{cutServer}, most: 1, explicit: true, lone: true, writes: 1},
		serverTells:       {faults: []kind{cutServer}, most: 1, explicit: true, lone: true},
		noGaps:            {faults: []kind{pauseClient}, most: 1},
		shortGaps:         {faults: []kind{pauseClient}, most: 1, writes: 1, lists: whole / 8, rates: slower},
		oneGap:            {faults: []kind{pauseClient}, most: 2},
		gapsEnd:           {faults: []kind{pauseClient}, most: 1},
		twelfthAfterGap:   {faults: []kind{pauseClient}, most: 1, rates: slower},
		ownClock:          {faults: []kind{stall}, most: 1, writes: 1, rates: []rate{{10, 9}}, horizon: whole / 2},
		sendsAreInstant:   {faults: []kind{pauseInWrite}, most: 1, writes: 1, rates: slower},
		sendsReach:        {faults: []kind{stall}, most: 1, writes: 1},
		noPingAhead:       {faults: []kind{stall}, most: 1, writes: 1},
		lateMeansSlow:     {faults: []kind{stall}, most: 1, writes: 1, waits: true, horizon: whole},
		noLeaveOverWrites: {faults: []kind{stall}, most: 1, writes: 1},
		handshakeNotes:    {faults: []kind{reset}, most: 1, writes: 1, lists: 2690, horizon: whole / 2, rates: slower},
		latestTimeout:     {grants: half, lists: whole / 8, path: []int{1, 0}, faults: []kind{newLeader}, most: 1},
		createdTimeout:    {grants: half, lists: whole / 8, faults: []kind{reset}, most: 1},
		ownUntil:          {grants: half, lists: whole / 8, faults: []kind{reset}, most: 1},
		loginFirst:        {grants: half, lists: whole / 8, faults: []kind{failLogin}, most: 1},
		staleLists:        {grants: half, lists: whole / 8, path: []int{0, 1}, faults: []kind{reset}, most: 1},
		lostForgotten:     {grants: half, lists: whole / 8, path: []int{0, 1, 0}, faults: []kind{resetStuck}, most: 1},
		worksNot:          {works: true, clients: 2, explicit: true},
		keptUnsaved:       {works: true, clients: 2, explicit: true},
		sessionOutlives:   {isBound: true, renews: true, faults: []kind{resetStuck}, most: 1, horizon: whole},
		anyOwner:          {renews: true, waits: true, faults: []kind{pauseClient, reset}, most: 2, horizon: 2 * whole},
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			states, s := exploreAll(t, b.withDefaults(), &premise{name})
			require.NotNil(t, s, "not found in %d states", states)
			t.Logf("found in %d states, %v\n%s", states, time.Since(began), s.course)
			printed, err := play(s.course, &premise{name})
			require.NoError(t, err)
			t.Log(printed)
			printed, err = play(s.course, nil)
			require.NoError(t, err)
			require.NotContains(t, printed, "VIOLATION", "the shipping code has the same defect")
		})
	}
}

// The explorer finds the courses that docs/guarantees.md and derivation.md leave open.
func TestExplorerFindsNamedLimits(t *testing.T) {
	half := [2]int64{whole, whole / 2}
	for name, b := range map[string]bounds{
		"a stall of T/4 behind a write, with one address":       {faults: []kind{stall}, most: 1, writes: 1, lone: true},
		"a pause of the leader with a clock at 8/9":             {faults: []kind{pauseLeader}, most: 1, rates: []rate{{8, 9}}},
		"a lost handshake is the first to grant less than 3T/4": {faults: []kind{resetBehind}, most: 1, grants: half, lists: whole / 8},
		"a clock at 7/8":                {rates: []rate{{7, 8}}},
		"a session timeout of one tick": {lists: whole / 2},
	} {
		t.Run(name, func(t *testing.T) {
			states, s := exploreAll(t, b.withDefaults(), nil)
			require.NotNil(t, s, "not found in %d states", states)
			t.Logf("found in %d states\n%s", states, s.course)
		})
	}
}
