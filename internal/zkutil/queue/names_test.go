package queue

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

const (
	curatorUUID = "8e3b5d3e-5b0c-4c7e-9c3b-0a2b4c6d8e0f"
	zkLockGUID  = "0123456789abcdef0123456789abcdef"
)

func TestSequenceOf(t *testing.T) {
	for _, test := range []struct {
		name, want string
		ok         bool
	}{
		{"_c_" + curatorUUID + "-lock-0000000007", "0000000007", true},
		{"_c_" + curatorUUID + "-latch-0000000007", "0000000007", true},
		{"_c_" + zkLockGUID + "-lock-0000000007", "0000000007", true},
		{zkLockGUID + "__lock__0000000007", "0000000007", true},
		{"lock-0000000007", "0000000007", true},
		{"lock-2147483647", "2147483647", true},
		{"lock--2147483648", "-2147483648", true},
		{"lock--000000001", "-000000001", true},
		{"lock--1", "-1", true},
		{"lock-5-lock-0000000007", "0000000007", true}, // the last marker counts
		{"latch-0000000001-lock-0000000007", "0000000007", true},
		{"lock-0000000001-latch-0000000007", "0000000007", true},
		{"lock-block-lock-0000000007", "0000000007", true},
		{"-lock-0000000007", "0000000007", true},
		{"x__lock__0000000007", "0000000007", true}, // kazoo has no - before its marker
		{"block-0000000012", "", false},             // of ClickHouse
		{"_c_x_lock-0000000007", "", false},
		{"swatch-latch-block-0000000007", "", false},
		{"lock-block-0000000007", "", false},
		{"lock-0000000007-block-0000000008", "", false},
		{"clatch-0000000007", "", false},
		{"block--000000001", "", false},
		{"lock-0000000001-lock-", "", false},
		{"", "", false},
		{"config", "", false},
		{"_c_x", "", false},
		{"__x", "", false},
		{"lock-", "", false},
		{"lock-abc", "", false},
		{"lock-000000007", "", false},   // nine digits
		{"lock-00000000007", "", false}, // eleven
		{"lock-000000000x", "", false},
		{"lock-+000000007", "", false},
		{"lock- 000000007", "", false},
		{"lock-٠٠٠٠٠٠٠٠٠٧", "", false}, // digits, but not the server's
		{"lock--", "", false},
		{"lock--12345678901", "", false},
		{"lock---000000001", "", false},
		{"0000000007", "", false},
		{"read-0000000007", "", false},
		{"Lock-0000000007", "", false},
	} {
		got, ok := sequenceOf(test.name, Markers)
		if !test.ok {
			require.False(t, ok, test.name)
			continue
		}
		require.True(t, ok, test.name)
		require.Equal(t, test.want, got, test.name)
	}
}

func TestIsContender(t *testing.T) {
	for _, marker := range []string{"lock-", "latch-", "lease-", "__lock__", "__READ__", "__WRIT__"} {
		for _, before := range []string{"", "-", "_c_" + curatorUUID + "-", "lock-"} {
			require.True(t, IsContender(before+marker+"0000000007"), before+marker)
		}
		isOne := strings.HasPrefix(marker, "_") // kazoo puts the marker right behind its uuid
		require.Equal(t, isOne, IsContender(zkLockGUID+marker+"0000000007"), marker)
	}
	for _, name := range []string{"", "locks", "leases", "release-0000000001", "block-0000000012", "queue-0000000001", "lock-1"} {
		require.False(t, IsContender(name), name)
	}
}

func FuzzSequenceOf(f *testing.F) {
	for _, seed := range []string{"", "lock-", "lock-0000000007", "x__lock__-1", "latch-lock-2147483647", "_c_x", "__lock__lock__-0", "block-0000000012", "lock-block-0000000012"} {
		f.Add(seed)
	}
	number := regexp.MustCompile(`^([0-9]{10}|-[0-9]{1,10})$`)
	f.Fuzz(func(t *testing.T, name string) {
		sequence, ok := sequenceOf(name, Markers)
		rest, found := "", false
		for i := range len(name) { // the plain way: every place where a marker may stand
			for _, marker := range Markers {
				isWord := i == 0 || marker == "__lock__" || name[i-1] == '-'
				if after, ok := strings.CutPrefix(name[i:], marker); ok && isWord && (!found || len(after) < len(rest)) {
					rest, found = after, true
				}
			}
		}
		require.Equal(t, found && number.MatchString(rest), ok)
		c, isOne := newContender(name, Markers)
		require.Equal(t, ok, isOne)
		require.Equal(t, sequence, c.sequence)
		if ok {
			require.Equal(t, rest, sequence)
			require.True(t, IsContender(name))
			checkSequence(sequence)
		}
	})
}

func TestContendersAreOrderedByNumberThenName(t *testing.T) {
	children := []string{
		"a-lock-0000000010", "config", "z-latch-0000000002", "b-lock-0000000002", "m__lock__0000000009",
		"lock-", "a-lock--000000001", "a-lock--2147483648", "x-lock-2147483647",
	}
	want := []string{
		"a-lock--000000001", "a-lock--2147483648", "b-lock-0000000002", "z-latch-0000000002",
		"m__lock__0000000009", "a-lock-0000000010", "x-lock-2147483647",
	}
	for range 20 {
		var got []string
		for _, c := range parseContenders(children, Markers) {
			got = append(got, c.Name)
		}
		require.Equal(t, want, got)
		children = append(children[1:], children[0])
	}
	require.Empty(t, parseContenders(nil, Markers))
	require.Empty(t, parseContenders([]string{"lock-0000000001"}, []string{"latch-"}))
}

func TestCheckSequence(t *testing.T) {
	for sequence, want := range map[string][2]bool{
		"0000000000":  {false, false},
		"1073741823":  {false, false},
		"1073741824":  {false, true}, // 2^30
		"2147483646":  {false, true},
		"2147483647":  {true, true},
		"-2147483648": {true, true},
		"-1":          {true, true},
		"9999999999":  {true, true},
		"":            {true, true}, // not a number: never grant on it
	} {
		exhausted, warn := checkSequence(sequence)
		require.Equal(t, want, [2]bool{exhausted, warn}, sequence)
	}
}

func TestUpTo(t *testing.T) {
	for own, want := range []int{-1, -1, 0, 1} {
		require.Equal(t, want, UpTo(2)(nil, own))
	}
	require.Equal(t, 0, UpTo(0)(nil, 0))
}

func TestExclusive(t *testing.T) {
	queue := parseContenders([]string{"lock-0000000001", "lock-0000000002", "lock-0000000003"}, Markers)
	for own := range queue {
		require.Equal(t, own-1, Exclusive(queue, own))
	}
}

// A refusal is the same with the name of any of our znodes.
func TestSameFailure(t *testing.T) {
	refusal := func(what, znode string) error { return fmt.Errorf("%s /e/%s: %w", what, znode, zk.ErrNoAuth) }
	first, second := "_c_00000000-0000-4000-8000-000000000001-latch-0000000001", "_c_00000000-0000-4000-8000-000000000002-latch-0000000022"
	require.True(t, IsSameFailure(refusal("read", first), refusal("read", second)))
	require.False(t, IsSameFailure(refusal("read", first), refusal("create", second)))
	require.False(t, IsSameFailure(refusal("read", first), refusal("read", "config")))
	require.False(t, IsSameFailure(refusal("read", first), nil))
	require.False(t, IsSameFailure(nil, nil))
}
