package testkit

import (
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// VirtualLimit bounds the virtual time of a test in a [Bubble]. A client that holds or awaits something wakes up all the time,
// so without a limit a test that waits for a missing event would run until go test gives up, minutes later.
const VirtualLimit = 3 * time.Hour

// Bubble runs a test in a bubble of testing/synctest. If the test, including its cleanups, has not ended after [VirtualLimit],
// Bubble ends the test binary and prints the stacks of the bubble's goroutines.
func Bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	BubbleFor(t, VirtualLimit, test)
}

// BubbleFor is [Bubble] for a test that takes more virtual time.
func BubbleFor(t *testing.T, limit time.Duration, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Helper()
		// Panic, because nothing else ends a blocked test.
		late := time.AfterFunc(limit, func() { panic(reportOfHang(t.Name(), limit)) })
		t.Cleanup(func() { late.Stop() }) // the first cleanup, which runs after the test's own cleanups
		test(t)
	})
}

// reportOfHang names the hanging test, and lists the stacks of the current bubble's goroutines.
func reportOfHang(test string, limit time.Duration) string {
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return fmt.Sprintf("%s hangs: it has not ended after %v of virtual time. Its goroutines:\n\n%s", test, limit, stacksOfBubble(string(stacks)))
}

var (
	stackHeader = regexp.MustCompile(`^goroutine \d+ (?:gp=\S+ m=\S+ )?\[([^,\]]+).*?(, synctest bubble \d+)`)
	callFrame   = regexp.MustCompile(`^(\S+)\(.*\)\n\t\S*?([^/\s]+:\d+)`)
)

// stacksOfBubble returns the stacks of the goroutines in the first goroutine's bubble, without the first goroutine and without
// the frames of the standard library. Equal stacks are shown once, with their number.
func stacksOfBubble(dump string) string {
	goroutines := strings.Split(strings.TrimSpace(dump), "\n\n")
	bubble := ""
	if m := stackHeader.FindStringSubmatch(goroutines[0]); m != nil {
		bubble = m[2]
	}
	counts := map[string]int{}
	var stacks []string
	for _, goroutine := range goroutines[1:] {
		m := stackHeader.FindStringSubmatch(goroutine)
		if m == nil || m[2] != bubble || strings.HasPrefix(m[1], "synctest.Run") { // the goroutine that runs the bubble
			continue
		}
		stack := trimStack(m[1], goroutine)
		if counts[stack]++; counts[stack] == 1 {
			stacks = append(stacks, stack)
		}
	}
	slices.SortStableFunc(stacks, func(a, b string) int { return rankOfStack(a) - rankOfStack(b) })
	var out strings.Builder
	for _, stack := range stacks {
		fmt.Fprintf(&out, "%d × %s\n", counts[stack], stack)
	}
	return out.String()
}

// trimStack returns the wait state and the frames of a goroutine, one per line.
func trimStack(state, goroutine string) string {
	lines := strings.Split(goroutine, "\n")[1:]
	var out strings.Builder
	out.WriteString(state + "\n")
	for i := 0; i+1 < len(lines); i += 2 {
		m := callFrame.FindStringSubmatch(lines[i] + "\n" + lines[i+1])
		if m == nil {
			continue
		}
		if module, _, isLong := strings.Cut(m[1], "/"); isLong && strings.Contains(module, ".") { // a host, as in no package of the standard library
			fmt.Fprintf(&out, "\t%s %s\n", m[1], m[2])
		}
	}
	return out.String()
}

// rankOfStack puts goroutines that run test code first, among them the test itself.
func rankOfStack(stack string) int {
	if strings.Contains(stack, "_test.go:") {
		return 0
	}
	return 1
}
