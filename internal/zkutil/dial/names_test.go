package dial

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// nameServer answers lookups, except of unknown names.
type nameServer struct {
	mu      sync.Mutex // protects what is below
	records map[string][]string
	failure error
}

func (s *nameServer) lookUp(ctx context.Context, name string) ([]string, error) {
	s.mu.Lock()
	addresses, isKnown := s.records[name]
	failure := s.failure
	s.mu.Unlock()
	if !isKnown {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return addresses, failure
}

func (s *nameServer) set(name string, addresses ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records[name] = addresses
}

func (s *nameServer) forget(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, name)
}

// newResolvingHosts returns hosts that resolve names, and their name server.
func newResolvingHosts(t *testing.T, isByName bool, servers ...string) (*hosts, *nameServer) {
	t.Helper()
	server := &nameServer{records: map[string][]string{}}
	ctx, cancel := context.WithCancel(t.Context())
	code := &userCode{ctx: ctx, running: map[string]int{}}
	h := &hosts{
		ctx: ctx, patience: func() time.Duration { return time.Second },
		names: &names{ctx: ctx, lookup: server.lookUp, run: code.calls.Run, isByName: isByName},
	}
	t.Cleanup(func() {
		cancel()
		<-code.calls.Finish()
	})
	require.NoError(t, h.Init(servers))
	return h, server
}

// round returns the servers of one round.
func round(h *hosts) (servers []string) {
	for range 20 {
		server, _ := h.Next()
		if len(servers) > 0 && len(h.tried) == 1 {
			return servers
		}
		servers = append(servers, server)
	}
	return servers
}

func TestRoundHasEachHostOnce(t *testing.T) {
	for name, test := range map[string]struct {
		isByName bool
		records  map[string][]string
		servers  []string
		want     []string
	}{
		"several addresses of a name": {
			records: map[string][]string{"zk": {"10.0.0.1", "10.0.0.2", "fd00::3"}},
			servers: []string{"zk:2181"},
			want:    []string{"zk/10.0.0.1:2181", "zk/10.0.0.2:2181", "zk/[fd00::3]:2181"},
		},
		"an address twice": {
			records: map[string][]string{"zk": {"10.0.0.1", "10.0.0.1"}},
			servers: []string{"zk:2181", "zk:2181"},
			want:    []string{"zk/10.0.0.1:2181"},
		},
		"several ports of a name": {
			records: map[string][]string{"zk": {"10.0.0.1"}},
			servers: []string{"zk:2181", "zk:2182"},
			want:    []string{"zk/10.0.0.1:2181", "zk/10.0.0.1:2182"},
		},
		"several names of an address": {
			records: map[string][]string{"zk1": {"10.0.0.1"}, "zk2": {"10.0.0.1"}},
			servers: []string{"zk1:2181", "zk2:2181"},
			want:    []string{"zk1/10.0.0.1:2181"},
		},
		"several names of an address, with TLS": {
			isByName: true,
			records:  map[string][]string{"zk1": {"10.0.0.1"}, "zk2": {"10.0.0.1"}},
			servers:  []string{"zk1:2181", "zk2:2181"},
			want:     []string{"zk1/10.0.0.1:2181", "zk2/10.0.0.1:2181"},
		},
		"a name and its address": {
			records: map[string][]string{"zk1": {"10.0.0.1"}},
			servers: []string{"10.0.0.1:2181", "zk1:2181"},
			want:    []string{"10.0.0.1:2181"},
		},
		"a name and its address, with TLS": {
			isByName: true,
			records:  map[string][]string{"zk1": {"10.0.0.1"}},
			servers:  []string{"10.0.0.1:2181", "zk1:2181"},
			want:     []string{"10.0.0.1:2181", "zk1/10.0.0.1:2181"},
		},
		"a name that is the beginning of another": {
			isByName: true,
			records:  map[string][]string{"zk1": {"10.0.0.1"}, "zk11": {"10.0.0.1"}},
			servers:  []string{"zk1:2181", "zk11:2181"},
			want:     []string{"zk1/10.0.0.1:2181", "zk11/10.0.0.1:2181"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				h, server := newResolvingHosts(t, test.isByName, test.servers...)
				for name, addresses := range test.records {
					server.set(name, addresses...)
				}
				h.Next()
				synctest.Wait() // for all lookups
				h.noteAnswer()
				for range 5 {
					require.ElementsMatch(t, test.want, round(h))
					require.Equal(t, len(test.want), h.countAddresses())
					h.noteAnswer()
				}
			})
		})
	}
}

// The result of Next is dialled, even if others share its address.
func TestHostsFindWhatNextHasReturned(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h, server := newResolvingHosts(t, true, "zk1:2181", "zk2:2181", "zk3:2181", "10.0.0.1:2181")
		for _, name := range []string{"zk1", "zk2", "zk3"} {
			server.set(name, "10.0.0.1")
		}
		for range 20 {
			next, _ := h.Next()
			to := h.find(next)
			require.Equal(t, next, to.String())
			require.Equal(t, "10.0.0.1:2181", to.address)
			require.Equal(t, to.name()+":2181", to.server)
		}
	})
}

// A refusal counts for a name and its address together, and a name without an address may still get a server that accepts.
func TestRefusalsGoByNameAndAddress(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h, server := newResolvingHosts(t, true, "zk1:2181", "zk2:2181", "zk3:2181")
		server.set("zk1", "10.0.0.1")
		server.set("zk2", "10.0.0.1")
		h.Next()
		synctest.Wait()
		for range 3 {
			require.NotEqual(t, CertainRefusal, h.noteFailure("zk1/10.0.0.1:2181", CertainRefusal), "zk2 has the same address")
		}
		for range 3 {
			require.NotEqual(t, CertainRefusal, h.noteFailure("zk2/10.0.0.1:2181", CertainRefusal), "the lookup of zk3 is under way")
		}
		server.set("zk3", "10.0.0.1")
		pass(2 * lookupLimit)
		h.tried = nil
		h.Next()
		synctest.Wait()
		require.NotEqual(t, CertainRefusal, h.noteFailure("zk2/10.0.0.1:2181", CertainRefusal), "zk3 has refused nothing")
		require.NotEqual(t, CertainRefusal, h.noteFailure("zk3/10.0.0.1:2181", CertainRefusal))
		require.Equal(t, CertainRefusal, h.noteFailure("zk3/10.0.0.1:2181", CertainRefusal))
	})
}

// Addresses of just resolved names are first. Addresses of names without an answer are next.
func TestFreshAddressesComeFirst(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h, server := newResolvingHosts(t, false, "zk1:2181", "zk2:2181", "zk3:2181")
		server.set("zk1", "10.0.0.1")
		server.set("zk2", "10.0.0.2")
		h.Next()
		synctest.Wait()
		server.forget("zk1")
		for range 20 {
			h.noteAnswer()
			h.chosen = host{}
			require.Equal(t, []string{"zk2/10.0.0.2:2181", "zk1/10.0.0.1:2181"}, round(h))
		}
	})
}

// The name server answers in the middle of a round. The round uses the new addresses in place of the old ones.
func TestRoundUsesAddressesResolvedMeanwhile(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h, server := newResolvingHosts(t, false, "zk1:2181", "zk2:2181")
		server.set("zk1", "10.0.0.1", "10.0.0.2", "10.0.0.3")
		server.set("zk2", "10.0.0.4")
		first, _ := h.Next()
		require.Contains(t, first, "/10.0.0.")
		synctest.Wait()
		h.names.mu.Lock()
		h.names.servers[0].name.addresses = []string{"10.1.0.1"}
		h.names.servers[1].name.addresses = []string{"10.1.0.2", "10.1.0.3"}
		h.names.mu.Unlock()
		var rest []string
		for range 2 {
			next, pause := h.Next()
			require.False(t, pause)
			rest = append(rest, next)
		}
		last, _ := h.Next()
		require.ElementsMatch(t, []string{"zk1/10.1.0.1:2181", "zk2/10.1.0.2:2181", "zk2/10.1.0.3:2181"}, append(rest, last))
	})
}

// If no name has an address, each round returns the reason for each name: at once if the lookups fail or find nothing,
// within the patience if the name server is silent.
func TestRoundOfNamesWithoutAddresses(t *testing.T) {
	refusal := errors.New("refused")
	isUnanswered := func(isNotFound bool) func(error) bool {
		return func(err error) bool {
			lookup, ok := zkutil.AsType[*net.DNSError](err)
			return ok && lookup.IsNotFound == isNotFound
		}
	}
	for name, test := range map[string]struct {
		isSilent bool
		failure  error
		took     time.Duration
		isReason func(error) bool
	}{
		"silent":  {isSilent: true, took: time.Second, isReason: isUnanswered(false)},
		"failing": {failure: refusal, isReason: func(err error) bool { return errors.Is(err, refusal) }},
		"empty":   {isReason: isUnanswered(true)},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				h, server := newResolvingHosts(t, true, "zk1:2181", "zk2:2181")
				if server.failure = test.failure; !test.isSilent {
					server.set("zk1")
					server.set("zk2")
				}
				start := time.Now()
				var seen []string
				for range 2 {
					next, pause := h.Next()
					require.False(t, pause)
					seen = append(seen, next)
					to := h.find(next)
					require.Empty(t, to.address)
					require.True(t, test.isReason(to.err), to.err)
					require.NotEqual(t, CertainRefusal, h.noteFailure(next, CertainRefusal))
				}
				require.ElementsMatch(t, []string{"zk1:2181", "zk2:2181"}, seen)
				require.Equal(t, test.took, time.Since(start))
				require.Equal(t, test.isSilent, h.names.pending() != nil)
				_, pause := h.Next()
				require.True(t, pause)
			})
		})
	}
}

// A lookup that is lost is given up after a while, and begun anew.
func TestSilentLookupIsRepeated(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		h, server := newResolvingHosts(t, true, "zk1:2181")
		h.Next()
		server.set("zk1", "10.0.0.1")
		pass(lookupLimit)
		next, _ := h.Next()
		require.Equal(t, "zk1/10.0.0.1:2181", next)
		require.NoError(t, h.names.pending())
	})
}

// The program's own resolver may ignore its context. The client's lookup ends with its context even so.
func TestLookupEndsWithItsContextWhileTheResolverHangs(t *testing.T) {
	dialling, released, returned := make(chan struct{}, 10), make(chan struct{}), make(chan struct{}, 10)
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		dialling <- struct{}{}
		<-released
		returned <- struct{}{}
		return nil, net.ErrClosed
	}}
	defer func() { net.DefaultResolver = before }()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { // ends with the lookup
		_, err := Network{}.withDefaults().LookupHost(ctx, "zk1.zkrecipes.test")
		ended <- err
	}()
	<-dialling
	defer close(released)
	cancel()
	select {
	case err := <-ended:
		require.Error(t, err)
		require.Empty(t, returned, "the resolver hangs still")
	case <-time.After(10 * time.Second):
		require.Fail(t, "the lookup waits for the resolver")
	}
}

func TestSystemResolverKnowsTheLoopback(t *testing.T) {
	addresses, err := Network{}.withDefaults().LookupHost(t.Context(), "localhost")
	require.NoError(t, err)
	require.Subset(t, []string{"127.0.0.1", "::1"}, addresses)
}

// A name server that falls silent delays a round by lookupGrace, while addresses are known from before.
func TestSilentNameServerDelaysARoundByTheGrace(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		n := following(t, "zk1:1", "zk2:1")
		synctest.Wait()
		n.lookup = func(ctx context.Context, _ string) ([]string, error) { <-ctx.Done(); return nil, ctx.Err() }
		start := time.Now()
		n.resolve(time.Hour, true)
		require.Equal(t, lookupGrace, time.Since(start))
		pass(2 * lookupLimit)
	})
}
