package core

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/connstate"
)

// pinned is an exploration of the shipping code with the number of states that it visits. A change that adds or removes behaviour shows in
// the number.
type pinned struct {
	bounds
	states  int
	isLong  bool // left out of the short form
	isNight bool // with -exhaustive only
}

// No course of events within these bounds leaves a valid hold of a session that the leader may end, or deletes the znode of work that goes on in
// trust. The counts and the states that a client shows are right, too (see violation). Unless a horizon is named, a course may last for any
// time, and every state is visited.
func TestExclusionWithinBounds(t *testing.T) {
	slow, fast := []rate{{8, 9}}, []rate{{10, 9}}
	handshakes := []kind{reset, resetStuck, resetBehind, failLogin}
	threeQuarters, half := [2]int64{whole, whole * 3 / 4}, [2]int64{whole, whole / 2}
	met, ran := newMet(), 0
	casts := map[string]pinned{
		"a stall":                                    {bounds: bounds{faults: []kind{stall}, most: 1}, states: 2748},
		"a stall, and a write":                       {bounds: bounds{faults: []kind{stall}, most: 1, writes: 1}, states: 96164, isLong: true},
		"a stall on a slow clock, and a write":       {bounds: bounds{faults: []kind{stall}, most: 1, writes: 1, rates: slow}, states: 539980, isLong: true},
		"a stall on a fast clock, and a write":       {bounds: bounds{faults: []kind{stall}, most: 1, writes: 1, rates: fast}, states: 796101, isLong: true},
		"late answers":                               {bounds: bounds{faults: []kind{deafen}, most: 1}, states: 9129},
		"late answers, and a write":                  {bounds: bounds{faults: []kind{deafen}, most: 1, writes: 1}, states: 431762, isNight: true},
		"a pause":                                    {bounds: bounds{faults: []kind{pauseClient}, most: 1}, states: 3447},
		"a pause, also inside a write":               {bounds: bounds{faults: []kind{pauseClient, pauseInWrite}, most: 1, writes: 1}, states: 73193, isLong: true},
		"a pause on a slow clock":                    {bounds: bounds{faults: []kind{pauseClient, pauseInWrite}, most: 1, writes: 1, rates: slow}, states: 315182, isLong: true},
		"a pause on a fast clock":                    {bounds: bounds{faults: []kind{pauseClient, pauseInWrite}, most: 1, writes: 1, rates: fast}, states: 447734, isNight: true},
		"a handshake that fails somehow":             {bounds: bounds{faults: handshakes, most: 1}, states: 22501},
		"a handshake that fails, and a write":        {bounds: bounds{faults: handshakes, most: 1, writes: 1}, states: 415314, isLong: true},
		"a handshake that fails on a slow clock":     {bounds: bounds{faults: handshakes, most: 1, rates: slow}, states: 69722, isLong: true},
		"a cut server, or a slow quorum":             {bounds: bounds{faults: []kind{cutServer, slowQuorum}, most: 1, writes: 1}, states: 131601, isLong: true},
		"a cut server, or a slow quorum, one server": {bounds: bounds{faults: []kind{cutServer, slowQuorum}, most: 1, writes: 1, lone: true}, states: 89350, isLong: true},
		"a cut server and a slow quorum, slow clock": {bounds: bounds{faults: []kind{cutServer, slowQuorum}, most: 2, rates: slow}, states: 342208, isLong: true},
		"another leader, or a pause of it":           {bounds: bounds{faults: []kind{newLeader, pauseLeader}, most: 1, writes: 1}, states: 76837, isLong: true},
		"ticks of T/3":                               {bounds: bounds{faults: []kind{stall, pauseClient}, most: 1, lists: whole / 6}, states: 5485},
		"ticks of T/4":                               {bounds: bounds{faults: []kind{stall, pauseClient}, most: 1, writes: 1, lists: whole / 8}, states: 174043, isLong: true},
		"ticks of T/10":                              {bounds: bounds{faults: []kind{stall, pauseClient}, most: 1, lists: whole / 20}, states: 15525},
		"ticks of T/20":                              {bounds: bounds{faults: []kind{stall, pauseClient}, most: 1, lists: whole / 40}, states: 31119},
		"a bound of 3T/4, lost handshakes":           {bounds: bounds{faults: append(handshakes, newLeader), most: 1, grants: threeQuarters, lists: whole / 8}, states: 19920},
		"a bound of T/2, no lost handshakes":         {bounds: bounds{faults: []kind{reset, failLogin, newLeader}, most: 1, grants: half, lists: whole / 8}, states: 9042},
		"a bound of T/2 that is known":               {bounds: bounds{faults: append(handshakes, newLeader), most: 1, grants: half, lists: whole / 8, path: []int{0, 1, 0}}, states: 17306},
		"two faults, a bound of T/2":                 {bounds: bounds{faults: []kind{reset, failLogin, newLeader}, most: 2, grants: half, lists: whole / 8}, states: 1234773, isNight: true},
		"two clients":                                {bounds: bounds{faults: []kind{stall, cutServer, pauseClient, reset}, most: 1, clients: 2, explicit: true}, states: 97655, isLong: true},
		"two clients, on a slow and an exact clock":  {bounds: bounds{faults: []kind{stall, cutServer, pauseClient, reset}, most: 1, clients: 2, explicit: true, rates: slow}, states: 362081, isNight: true},
		"two stalls within T":                        {bounds: bounds{faults: []kind{stall}, most: 2, horizon: whole}, states: 26397, isNight: true},
		"a stall and a pause within T":               {bounds: bounds{faults: []kind{stall, pauseClient}, most: 2, horizon: whole}, states: 130133, isNight: true},
		"two handshakes that fail within T":          {bounds: bounds{faults: handshakes, most: 2, horizon: whole}, states: 1440569, isNight: true},
		"two faults of any kind within T/2":          {bounds: bounds{faults: allFaults, most: 2, horizon: whole / 2}, states: 349719, isNight: true},
		"two faults on a slow clock within T/2":      {bounds: bounds{faults: []kind{stall, deafen, pauseClient, slowQuorum, cutServer, reset, resetBehind}, most: 2, horizon: whole / 2, rates: slow}, states: 61164, isNight: true},
		"a cut and late answers within T/2":          {bounds: bounds{faults: []kind{deafen, cutServer}, most: 2, writes: 1, horizon: whole / 2}, states: 98897, isNight: true},
		"a waiter, and a stall":                      {bounds: bounds{waits: true, faults: []kind{stall, slowQuorum}, most: 1, horizon: whole}, states: 74463, isLong: true},
		"a waiter, and a pause":                      {bounds: bounds{waits: true, faults: []kind{pauseClient}, most: 1, horizon: whole}, states: 19986},
		"a waiter, and late answers":                 {bounds: bounds{waits: true, faults: []kind{deafen}, most: 1, horizon: whole}, states: 66599, isLong: true},
		"a waiter, and a handshake":                  {bounds: bounds{waits: true, faults: handshakes, most: 1, horizon: whole}, states: 312585, isNight: true},
		"an idle client, and a stall":                {bounds: bounds{idles: true, faults: []kind{stall, slowQuorum}, most: 1, horizon: whole}, states: 68171, isLong: true},
		"an idle client, and a pause":                {bounds: bounds{idles: true, faults: []kind{pauseClient}, most: 1, horizon: whole}, states: 24602},
		"an idle client, and a handshake":            {bounds: bounds{idles: true, faults: handshakes, most: 1, horizon: whole}, states: 394076, isNight: true},
		"work, and a client that closes":             {bounds: bounds{works: true, clients: 2, explicit: true, horizon: whole}, states: 1300},
		"work that releases the lock":                {bounds: bounds{works: true, leaves: true, clients: 2, explicit: true, horizon: whole}, states: 5936},
		"work that releases the lock, and a pause":   {bounds: bounds{works: true, leaves: true, clients: 2, explicit: true, faults: []kind{pauseClient}, most: 1, horizon: whole}, states: 524692, isLong: true},
		"work that releases the lock, and a reset":   {bounds: bounds{works: true, leaves: true, clients: 2, explicit: true, faults: []kind{reset}, most: 1, horizon: whole}, states: 249033, isLong: true},
		"work, and a pause":                          {bounds: bounds{works: true, clients: 2, explicit: true, faults: []kind{pauseClient}, most: 1, horizon: whole}, states: 121028, isLong: true},
		"work, and a reset":                          {bounds: bounds{works: true, clients: 2, explicit: true, faults: []kind{reset, resetStuck, resetBehind}, most: 1, horizon: whole}, states: 950278, isNight: true},
		"work, and a cut server or a stall":          {bounds: bounds{works: true, clients: 2, explicit: true, faults: []kind{cutServer, stall}, most: 1, horizon: whole}, states: 153968, isLong: true},
		"work on a slow clock, and a cut server":     {bounds: bounds{works: true, clients: 2, explicit: true, rates: slow, faults: []kind{cutServer}, most: 1, horizon: whole}, states: 18054, isLong: true},
		"another session after a pause":              {bounds: bounds{renews: true, faults: []kind{pauseClient}, most: 1, horizon: 2 * whole}, states: 105920, isLong: true},
		"another session after a lost handshake":     {bounds: bounds{renews: true, faults: []kind{resetStuck}, most: 1, horizon: 2 * whole}, states: 32128},
		"another session of a waiter, after a pause": {bounds: bounds{renews: true, waits: true, faults: []kind{pauseClient}, most: 1, horizon: 2 * whole}, states: 288027, isLong: true},
		"a session that ends with its connection":    {bounds: bounds{isBound: true, renews: true, explicit: true, faults: []kind{reset, resetStuck, resetBehind, pauseClient}, most: 1, horizon: whole}, states: 79399, isLong: true},
		"holds that end with it, and a reset":        {bounds: bounds{suspends: true, renews: true, faults: []kind{reset}, most: 1, horizon: whole / 2}, states: 1741},
		"holds that end with the connection":         {bounds: bounds{suspends: true, renews: true, faults: []kind{reset, resetStuck, stall}, most: 1, horizon: whole}, states: 127823, isLong: true},
		"an idle client on a slow clock":             {bounds: bounds{idles: true, rates: slow, horizon: whole}, states: 1027},
		"an idle client on a fast clock":             {bounds: bounds{idles: true, rates: fast, horizon: whole}, states: 1460},
	}
	for name, e := range casts {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && e.isLong || testkit.IsRaced && e.isLong || e.isNight && !*testkit.Exhaustive {
				ran += boolInt(e.isNight)
				return
			}
			e.met, ran = met, ran+1
			began := time.Now()
			states, s := exploreAll(t, e.withDefaults(), nil)
			if s != nil {
				t.Fatalf("%s\n%s", s.found, s.course)
			}
			t.Logf("%d states, %v", states, time.Since(began))
			require.Equal(t, e.states, states, "states")
		})
	}
	if ran < len(casts) {
		return
	}
	for _, k := range append(slices.Clone(allFaults), pass, write, turn, closeClient, leaveLock, endWork, free, resume, resumeOnTimers, quick, executeLost, resumeLeader) {
		require.True(t, met.steps[k], k)
	}
	require.Equal(t, map[Verdict]bool{Granted: true, Unproven: true, Stale: true, Over: true}, met.verdicts) // nothing deletes the znode of a claim
	require.Equal(t, map[error]bool{zkutil.ErrReleased: true, zkutil.ErrClosed: true, zkutil.ErrSessionLost: true, zkutil.ErrSuspended: true}, met.causes)
	require.Equal(t, map[Fate]bool{Stays: true, GoesLater: true, GoesAtOnce: true}, met.fates)
	for state := connstate.Suspended; state <= connstate.Closed; state++ {
		require.True(t, met.states[state], state)
	}
	require.True(t, met.leaves, "a silent server is left")
}
