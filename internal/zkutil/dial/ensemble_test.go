package dial

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// The cases are the reports about Curator's tracker: 384 and 664 (a server on all its addresses), 392 and 402 (the port of the quorum),
// 345 and 526 (no address for clients), 578 and 638 (names).
func TestParseMembers(t *testing.T) {
	for name, test := range map[string]struct {
		config   string
		isSecure bool
		want     Members
	}{
		"names stay": {
			config: "server.1=zk1:2888:3888:participant;zk1.example.com:2181\nserver.2=10.0.0.2:2888:3888:observer;10.0.0.2:2182\nversion=100000000",
			want:   Members{1 << 32, []string{"zk1.example.com:2181", "10.0.0.2:2182"}, 2},
		},
		"all addresses": {
			config: "server.1=zk1:22888:32888:participant;0.0.0.0:22181\nserver.2=[2001:db8::2]:2888:3888:participant;[::]:2181\nserver.3=zk3:2888:3888;2183\nversion=a",
			want:   Members{10, []string{"zk1:22181", "[2001:db8::2]:2181", "zk3:2183"}, 3},
		},
		"alternatives": {
			config: "server.1=zk1a:2888:3888|zk1b:2888:3888:participant;0.0.0.0:2181\n",
			want:   Members{0, []string{"zk1a:2181"}, 1},
		},
		"no client address": {
			config: "server.1=zk1:2888:3888:participant\nserver.2=zk2:2888:3888:participant;2181\nversion=0",
			want:   Members{0, []string{"zk2:2181"}, 2},
		},
		"secure":             {"server.1=zk1:2888:3888:participant;0.0.0.0:2181;0.0.0.0:2281\n", true, Members{0, []string{"zk1:2281"}, 1}},
		"secure alone":       {"server.1=zk1:2888:3888:participant;;zk1:2281\n", true, Members{0, []string{"zk1:2281"}, 1}},
		"secure, not wanted": {"server.1=zk1:2888:3888:participant;;zk1:2281\n", false, Members{0, nil, 1}},
		"plain, not wanted":  {"server.1=zk1:2888:3888:participant;2181\n", true, Members{0, nil, 1}},
		"groups":             {"group.1=1:2:3\nweight.1=1\nserver.1=zk1:1:2;2181\r\n\nversion=1", false, Members{1, []string{"zk1:2181"}, 1}},
		"standalone":         {"", false, Members{}},
	} {
		got, err := ParseMembers([]byte(test.config), test.isSecure)
		require.NoError(t, err, name)
		require.Equal(t, test.want, got, name)
	}
	for _, config := range []string{
		"server.1=zk1:1:2;zk1:x", "server.1=zk1:1:2;0", "server.1=zk1:1:2;70000", "server.1=;2181", "server.1=0.0.0.0:1:2;2181",
		"server.1=zk1:1:2;[::1:2181", "version=x", "version=", "server.1=[::]:1:2;2181",
	} {
		_, err := ParseMembers([]byte(config), false)
		require.ErrorIs(t, err, errNotConfig, config)
	}
}

func FuzzParseMembers(f *testing.F) {
	f.Add([]byte("server.1=zk1:2888:3888:participant;0.0.0.0:2181;zk1:2281\nversion=1"), true)
	f.Fuzz(func(t *testing.T, config []byte, isSecure bool) {
		m, err := ParseMembers(config, isSecure)
		if err != nil {
			require.ErrorIs(t, err, errNotConfig)
			return
		}
		require.LessOrEqual(t, len(m.Addresses), m.Total)
		for _, address := range m.Addresses {
			require.NoError(t, (&names{}).init([]string{address}), address)
		}
	})
}

// following returns names that are configured. A test with it needs a bubble: on a busy machine, a lookup takes longer than
// lookupGrace.
func following(t *testing.T, configured ...string) *names {
	t.Helper()
	n := &names{
		ctx: t.Context(), run: func(lookup func()) bool { go lookup(); return true },
		lookup: func(_ context.Context, name string) ([]string, error) {
			return map[string][]string{"zk1": {"10.0.0.1"}, "zk2": {"10.0.0.2"}, "proxy": {"10.9.9.9"}}[name], nil
		},
	}
	require.NoError(t, n.init(configured))
	n.resolve(time.Second, true)
	return n
}

// tiers returns the members and the last resorts.
func tiers(n *names) (members, lastResorts []string) {
	for _, s := range n.servers {
		if s.isLastResort {
			lastResorts = append(lastResorts, s.text)
		} else {
			members = append(members, s.text)
		}
	}
	return members, lastResorts
}

func TestFollow(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := following(t, "10.0.0.1:1", "proxy:1")
		n.resolve(time.Second, true)
		n.follow([]string{"zk1:1", "zk2:1"})
		members, last := tiers(n)
		require.Equal(t, []string{"zk1:1", "zk2:1"}, members)
		require.Equal(t, []string{"10.0.0.1:1", "proxy:1"}, last, "as far as is known: zk1 was not looked up")
		n.resolve(time.Second, true)
		require.False(t, n.hasLeft(host{server: "10.0.0.1:1", address: "10.0.0.1:1"}))
		require.False(t, n.hasLeft(host{server: "proxy:1", address: "10.9.9.9:1"}), "never was one")

		n.follow([]string{"zk2:1"})
		members, last = tiers(n)
		require.Equal(t, []string{"zk2:1"}, members)
		require.Equal(t, []string{"proxy:1"}, last, "zk1 has left, under its address as well")
		require.True(t, n.hasLeft(host{server: "10.0.0.1:1", address: "10.0.0.1:1"}))
		require.True(t, n.hasLeft(host{server: "zk1:1", address: "10.0.0.1:1"}))
		require.False(t, n.hasLeft(host{server: "zk2:1", address: "10.0.0.2:1"}))

		n.follow([]string{"zk1:1"})
		members, last = tiers(n)
		require.Equal(t, []string{"10.0.0.1:1", "zk1:1"}, members, "what was given stays, under its name")
		require.Equal(t, []string{"proxy:1"}, last)
		require.False(t, n.hasLeft(host{server: "10.0.0.1:1", address: "10.0.0.1:1"}), "it is back")
		require.True(t, n.hasLeft(host{server: "zk2:1", address: "10.0.0.2:1"}))
		require.Equal(t, 3, n.count())
	})
}

// Members that leave or return are found by their texts, without a lookup.
func TestFollowWithoutLookups(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := following(t, "proxy:1")
		n.lookup = func(context.Context, string) ([]string, error) { return nil, errors.New("no name server") }
		both := []string{"zk1:1", "zk2:1"}
		n.follow(both)
		for _, members := range [][]string{both[:1], both[1:], both[:1], both} {
			n.follow(members)
			n.resolve(time.Second, true)
			for _, server := range both {
				require.Equal(t, !slices.Contains(members, server), n.hasLeft(host{server: server}), "%s, of %s", server, members)
			}
		}
	})
}

// Servers that are only last resorts are no members, and do not keep a member from being reached.
func TestReachMember(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		certificate, _ := issue(t, "zk1")
		server, owner := newTLSServer(t, certificate), &testOwner{patience: time.Second}
		d := server.dialer(owner, nil, false)
		require.NoError(t, d.hosts.Init([]string{"10.0.0.1:1", "10.0.0.2:1"}))
		d.Follow([]string{"10.0.0.3:1"})
		require.True(t, d.ReachMember())
		require.Equal(t, []string{"10.0.0.3:1"}, server.dialed)
		synctest.Wait()
		require.Zero(t, server.open.Load(), "no socket stays open")
		owner.refusal = errors.New("closed")
		require.False(t, d.ReachMember())
	})
}

// If certificates or logins depend on names, an address does not identify a server. The given name stays, and only that name
// can leave.
func TestFollowByName(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := following(t, "zk1:1", "zk2:1")
		n.isByName = true
		for version, members := range [][]string{{"10.0.0.1:1", "10.0.0.2:1"}, {"10.0.0.2:1"}, {"10.0.0.7:1"}} {
			n.follow(members)
			n.resolve(time.Second, true)
			got, last := tiers(n)
			require.Equal(t, members, got, version)
			require.Equal(t, []string{"zk1:1", "zk2:1"}, last, version)
			require.False(t, n.hasLeft(host{server: "zk1:1", address: "10.0.0.1:1"}), version)
		}
		n.follow([]string{"zk1:1", "zk2:1"})
		n.follow([]string{"zk2:1"})
		members, last := tiers(n)
		require.Equal(t, []string{"zk2:1"}, members)
		require.Empty(t, last)
		require.True(t, n.hasLeft(host{server: "zk1:1", address: "10.0.0.1:1"}))
	})
}

// A suggestion adds servers, within a bound. It removes no server, and restores one that left.
func TestSuggest(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := following(t, "zk1:1")
		require.True(t, n.suggest([]string{"zk1:1", "10.0.0.2:1"}))
		require.True(t, n.suggest([]string{"10.0.0.1:1", "zk2:1"}))
		require.False(t, n.suggest([]string{"zk2:1", "zk1:1"}), "all are known")
		require.False(t, n.suggest(nil))
		members, last := tiers(n)
		require.Equal(t, []string{"zk1:1", "10.0.0.2:1", "10.0.0.1:1", "zk2:1"}, members)
		require.Empty(t, last)
		for _, h := range []host{{server: "zk1:1", address: "10.0.0.1:1"}, {server: "10.0.0.2:1", address: "10.0.0.2:1"}} {
			require.False(t, n.hasLeft(h))
		}

		n.follow([]string{"zk2:1"})
		require.False(t, n.hasLeft(host{server: "zk1:1", address: "10.0.0.1:1"}), "as far as is known, it never was a member")
		n.follow([]string{"zk1:1"})
		require.True(t, n.hasLeft(host{server: "zk2:1", address: "10.0.0.2:1"}))
		require.True(t, n.suggest([]string{"zk2:1"}))
		require.False(t, n.hasLeft(host{server: "zk2:1", address: "10.0.0.2:1"}))

		for i := range 2 * maxServers {
			n.suggest([]string{fmt.Sprintf("10.1.0.%d:1", i)})
		}
		require.Equal(t, maxServers, n.count())
	})
}

// Servers that answered precede those that only the configuration names, whose addresses may be unreachable.
func TestServersThatAnsweredComeFirst(t *testing.T) {
	testkit.Bubble(t, serversThatAnsweredComeFirst)
}

func serversThatAnsweredComeFirst(t *testing.T) {
	t.Helper()
	h := newHosts(t, "given:1")
	members := []string{"m1:1", "m2:1", "m3:1", "m4:1", "m5:1"}
	next := func() string {
		server, _ := h.Next()
		return server
	}
	connect := func(server string) {
		h.noteGood(server)
		h.noteAnswer()
	}
	require.Equal(t, "given:1", next())
	connect("given:1")
	h.names.follow(members)
	for range 20 { // cut again and again
		require.Equal(t, "given:1", next())
		connect("given:1")
	}
	h.noteSilence("given:1")
	first := next()
	require.Contains(t, members, first, "the given server was silent")
	h.noteFailure(first, NoRefusal)
	second := next()
	require.Contains(t, members, second)
	require.NotEqual(t, first, second)
	connect(second)
	for range 20 {
		require.Equal(t, second, next(), "a member that answered")
		connect(second)
	}
	connect("given:1")
	for range 20 {
		require.Equal(t, "given:1", next(), "it answered too, and was not tried last")
		connect("given:1")
		require.Equal(t, second, next(), "as above")
		connect(second)
	}
	h.noteFailure(second, NoRefusal)
	require.Equal(t, "given:1", next())
	seen := map[string]bool{}
	for range members {
		seen[next()] = true
	}
	require.Len(t, seen, len(members), "every member has its turn in a round")
}
