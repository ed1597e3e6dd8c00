// Package zktest is a ZooKeeper for tests: a server, or an ensemble of several, inside
// the test process. It needs neither Java nor a container nor a disk, starts in less
// than a millisecond, and fails in any way that its user asks for by name.
//
// Nothing is mocked. The server speaks ZooKeeper's protocol, and the program under test
// talks to it through the client that it uses anyway:
//
//	func TestReport(t *testing.T) {
//		server := zktest.NewServer(t) // closed at the end of the test
//		client, err := recipes.Connect(t.Context(), []string{server.Addr()})
//		require.NoError(t, err)
//		defer client.Close()
//		// … run the program, lose its session, see what it does:
//		server.Expire(client.Conn().SessionID())
//	}
//
// A program, such as a demo, has [Start] instead of [NewServer]. The package serves any
// client of ZooKeeper, not only the recipes of this module.
//
// # What it speaks
//
// The protocol of ZooKeeper 3.8: sessions with handshake, reconnect, ping, expiry and
// close; create in all modes (persistent, ephemeral, sequential, container, TTL), delete,
// exists, get, set, children, multi with check, sync; ACLs of the schemes world, digest,
// ip and auth, enforced; one-shot watches, and their renewal after a reconnect. Zxids,
// versions, sequence numbers, error codes and stats are the ones that a real server
// gives. Each session is served in order. Frames are limited to a megabyte, as there.
//
// A session lives for its timeout from the last sign of life, and to the end of that
// tick; a tick lasts 50 ms here, and timeouts from 100 ms on are granted, so that tests
// need not wait. Options change that, and the number of servers.
//
// # Virtual time
//
// In a bubble of [testing/synctest] the server's clock is the bubble's. A test of what
// happens within half a minute then takes a millisecond, and can compare times exactly.
// No socket works in a bubble, so clients connect through [Server.Dialer]. This is a
// whole test: a holder whose network falls silent has stopped before the next one gets
// in.
//
//	func TestHolderStopsInTime(t *testing.T) {
//		synctest.Test(t, func(t *testing.T) {
//			server := zktest.NewServer(t)
//			connect := func() (*recipes.Client, *mutex.InterProcessMutex) {
//				client, err := recipes.Connect(t.Context(), []string{server.Addr()},
//					recipes.WithDialer(server.Dialer()), recipes.WithSessionTimeout(30*time.Second))
//				require.NoError(t, err)
//				t.Cleanup(func() { require.NoError(t, client.Close()) })
//				lock, err := mutex.New(client, "/locks/report")
//				require.NoError(t, err)
//				return client, lock
//			}
//			holder, held := connect()
//			_, wanted := connect()
//			lease, err := held.Acquire(t.Context())
//			require.NoError(t, err)
//
//			server.Partition(holder.Conn().SessionID()) // silence, and no reset
//			start := time.Now()
//			<-lease.Context().Done()
//			require.ErrorIs(t, context.Cause(lease.Context()), recipes.ErrSessionLost)
//			require.Equal(t, 20*time.Second, time.Since(start))
//			require.Len(t, server.Children("/locks/report"), 1, "the server has not given it up yet")
//
//			next, err := wanted.Acquire(t.Context()) // waits for that
//			require.NoError(t, err)
//			require.WithinDuration(t, start.Add(30*time.Second), time.Now(), 50*time.Millisecond) // a tick
//			require.Greater(t, next.FencingToken(), lease.FencingToken())
//		})
//	}
//
// # Faults
//
// Those of the first group choose sessions by their ids, or concern all if none is given
// (0 for Expire). Those of the second choose servers by their addresses, or concern all.
//
//	fault                what a client meets                            elsewhere it is
//	Expire               the news at its next handshake                 a pause longer than the session
//	Disconnect           a closed connection; the session lives         a restarted proxy
//	Partition … Heal     silence without a reset; what it has sent      a pulled cable, a firewall
//	                     arrives after Heal
//	DropReply            its request is executed, and the connection    a lost packet
//	                     ends instead of an answer
//	DropRequest          the same, but nothing is executed              a lost packet
//	Delay                late answers, in order                         a loaded server
//
//	Stop … Restart       refused connections; znodes and sessions       a rolling restart
//	                     are kept
//	Freeze … Heal        accepted connections without an answer         a paused machine
//	Isolate … Heal       pings, reads and sync answered, from what      a server that has not noticed
//	                     was known; writes never                        the loss of its quorum
//
// [Server.Put], [Server.Delete], [Server.SetSequence] and [Server.Reap] change the tree as
// somebody else might. [Server.Inject] is for what has no name here: a rule sees every
// request before it is executed, can answer it with an error, lose or delay it, and can
// cause any of the above at just that moment.
//
// To see what a client did, [Server.Observe] logs its requests, and [Server.Sessions],
// [Server.Children] and [Server.Get] show what is there.
//
// # What it does not do
//
//   - Requests that no recipe needs are answered with Unimplemented, as a real server
//     answers one that it does not know, and the connection ends: persistent and recursive
//     watches, the removal of watches, multi reads, reconfiguration, SASL.
//   - No TLS, no four-letter words, no admin server, no quotas, no read-only mode.
//   - No disk: when the server is closed, all is gone. Stop and Restart keep everything.
//   - An ensemble shares one tree: its servers never lag behind each other unless they
//     are isolated, and there are no elections.
//
// # Conformance
//
// One suite of protocol cases runs against this server and, in the module integration,
// against ZooKeeper 3.8: same results, error codes, stats and watch events, in the same
// order. So does a random sequence of a hundred thousand operations from several
// sessions, compared step by step. Where this server and a real one differ in what is
// listed under "What it speaks", that is a bug.
//
// # Concurrency
//
// All methods may be called from any goroutine, those of [Log] included. Rules run under
// no lock, and may call any method but Close. A fault is in force when its method
// returns. Close ends every connection, and returns when every goroutine of the server
// has ended; inside a bubble, close the clients there too.
package zktest
