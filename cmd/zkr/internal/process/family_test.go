//go:build linux

package process

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// A watchdog that ends before its first message knows no family.
func TestEmptyFamilyHasNoMembers(t *testing.T) {
	var f Family
	require.NotEmpty(t, snapshot())
	require.Empty(t, f.members(snapshot(), 0))
	f.Remember(0)
	require.Empty(t, f.Known)
}

// Another process may have the number of an ended zkr by now.
func TestFamilyOfAnEndedZkr(t *testing.T) {
	all := map[int]stat{
		10: {state: "S", parent: 1, start: 500},
		11: {state: "S", parent: 10, start: 501},
	}
	f := Family{Zkr: ID{10, 500}}
	require.Equal(t, []int{11}, f.members(all, 0))
	f.Zkr.Start = 499
	require.Empty(t, f.members(all, 0))
}

func TestFamily(t *testing.T) {
	all := map[int]stat{
		10: {state: "S", parent: 1, start: 1},   // zkr
		11: {state: "S", parent: 10, start: 2},  // the watchdog
		12: {state: "S", parent: 10, start: 3},  // a child from before
		13: {state: "S", parent: 12, start: 4},  // its child
		14: {state: "S", parent: 10, start: 5},  // the command
		15: {state: "S", parent: 14, start: 6},  // its child
		16: {state: "Z", parent: 14, start: 7},  // another one, already dead
		17: {state: "S", parent: 10, start: 8},  // an orphan
		18: {state: "S", parent: 1, start: 9},   // a process that was a member
		19: {state: "S", parent: 18, start: 10}, // its child
		20: {state: "S", parent: 1, start: 11},  // no member
		21: {state: "S", parent: 20, start: 12},
		22: {state: "S", parent: 99, start: 13}, // its parent is dead by now
	}
	f := Family{Zkr: ID{10, 1}, Others: []ID{{12, 3}}, Known: []ID{{18, 9}, {20, 5}}}
	require.ElementsMatch(t, []int{14, 15, 17, 18, 19}, f.members(all, 11))
	require.NotContains(t, f.members(all, 11), os.Getpid())
}
