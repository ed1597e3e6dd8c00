package zkutil

import (
	"fmt"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Only functions called inside a scope, in its goroutine, find the scope.
func TestScopes(t *testing.T) {
	for _, number := range []Scope{1, 2, 3, 4, 5, 16, 64, 255, 256, 1 << 20, 1<<32 - 1} {
		others := []Scope{number + 1, number * 4, number/4 + 7, number ^ 1<<31, 0}
		require.False(t, number.IsOnStack())
		RunUserCode(func() {
			require.True(t, number.IsOnStack())
			var deep func(n int)
			deep = func(n int) {
				if n > 0 {
					deep(n - 1)
					return
				}
				require.True(t, number.IsOnStack(), "below many frames")
			}
			deep(300)
			for _, other := range others {
				require.False(t, other.IsOnStack(), "%d for %d", other, number)
				RunUserCode(func() {
					require.True(t, other == 0 || other.IsOnStack())
					require.True(t, number.IsOnStack(), "further out")
				}, other)
				require.False(t, other.IsOnStack())
			}
			inside := make(chan bool)
			go func() { inside <- number.IsOnStack() }() // ends with its answer, which is awaited here
			require.False(t, <-inside, "a goroutine that it has started")
		}, number)
		require.False(t, number.IsOnStack(), "after it")
	}
}

//go:noinline
func panicBelow(frames int, ids [2]uint64) { // an array, because it is passed in memory, not in registers
	if frames > 0 {
		panicBelow(frames-1, ids)
		return
	}
	panic(ids[1])
}

// A stack that is logged after a panic has functions and lines, but no argument: it may be a session id. A long stack has a line
// of its own in place of the frames in the middle.
func TestStackForLogsHasNoArguments(t *testing.T) {
	for _, frames := range []int{0, 1, 150, 151} {
		t.Run(fmt.Sprint(frames), func(t *testing.T) {
			defer func() {
				require.EqualValues(t, 1, recover())
				whole, stack := string(debug.Stack()), string(StackForLogs())
				require.Contains(t, whole, "0x1234567890abcdef", "an argument is on the stack")
				require.Equal(t, frames > 100, strings.Contains(whole, "frames elided"))
				require.Equal(t, strings.Contains(whole, "frames elided"), strings.Contains(stack, "frames elided"))
				require.NotRegexp(t, `\([^)]*0x`, stack)
				require.Regexp(t, `^goroutine \d+ \[running\]:\n`, stack)
				require.Regexp(t, `\npanic\(\)\n\t.*\n.*/zkutil\.panicBelow\(\)\n\t.*/scope_test\.go:\d+ `, stack)
				require.Contains(t, stack, "created by testing.(*T).Run in goroutine")
			}()
			panicBelow(frames, [2]uint64{0x1234567890abcdef, 1})
		})
	}
}

// The frames of a scope are left out, also those after a gap in a long stack.
func TestStackForLogsHasNoScopes(t *testing.T) {
	for _, frames := range []int{0, 150, 151} {
		func() {
			defer func() {
				require.EqualValues(t, 1, recover())
				require.Contains(t, string(debug.Stack()), "zkutil/scope.go")
				stack := string(StackForLogs())
				require.NotContains(t, stack, "zkutil/scope.go")
				require.NotContains(t, stack, "zkutil.digit")
				require.Contains(t, stack, "TestStackForLogsHasNoScopes")
			}()
			RunUserCode(func() { panicBelow(frames, [2]uint64{0, 1}) }, 1<<32-1)
		}()
	}
}
