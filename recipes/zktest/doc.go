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
// Package zkclient makes that one line, which also works in a bubble. A program, such as a
// demo, has [Start] instead of [NewServer]. The package serves any
// client of ZooKeeper, not only the recipes of this module.
//
// # What it speaks
//
// The protocol of ZooKeeper 3.8: sessions with handshake, reconnect, ping, expiry and
// close; create in all modes (persistent, ephemeral, sequential, container, TTL), delete,
// exists, get, set, children, multi with check, multiRead, sync; ACLs of the schemes world,
// digest, ip and auth, enforced; watches for once, persistent and recursive ones, their removal, and
// their renewal after a reconnect; TLS. So it serves the recipes of this module, Curator's,
// kazoo's and whatever else needs no more than that. Zxids,
// versions, sequence numbers, error codes and stats are the ones that a real server
// gives. Each session is served in order. Frames are limited to a megabyte, as there.
//
// A session lives for its timeout from the last sign of life, and to the end of that
// tick; a tick lasts 50 ms here, and timeouts from 100 ms on are granted, so that tests
// need not wait. Options change that, and the number of servers. Znodes with a TTL need
// [WithTTLNodes], as real servers refuse them, too, unless they are told.
//
// # Virtual time
//
// In a bubble of [testing/synctest] the server's clock is the bubble's. A test of what
// happens within half a minute then takes a millisecond, and can compare times exactly.
// No socket works in a bubble, so clients connect through [Server.Dialer], as those of
// package zkclient do; the address says so to others. This is a
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
// (Expire needs one; ExpireAll ends all). Those of the second choose servers by their
// addresses, or concern all. An id or an address that the server never gave out is a
// panic: no test passes because its fault hit nobody.
//
//	fault                what a client meets                            elsewhere it is
//	Expire, ExpireAll    the news at its next handshake                 a pause longer than the session
//	Disconnect           a closed connection; the session lives         a restarted proxy
//	Partition … Heal,    silence without a reset; what it has sent      a pulled cable, a firewall
//	HealSessions         arrives after Heal
//	DropReply            its request is executed, and the connection    a lost packet
//	                     ends instead of an answer
//	DropRequest          the same, but nothing is executed              a lost packet
//	DropAnswer           its request is executed, and everything but    a defect
//	                     that is answered
//	DropEvent            its watch is used up, and nobody tells it      a defect
//	Delay                late answers, in order                         a loaded server
//	SetBandwidth         answers that trickle in                        a slow link
//
//	PartitionFrom …      silence on the way to one server               a broken route
//	Heal, HealSessions
//	Stop … Restart       refused connections; znodes and sessions       a rolling restart
//	                     are kept
//	Freeze … Heal        accepted connections without an answer         a paused machine
//	Isolate … Heal       pings, reads and sync answered, from what      a server that has not noticed
//	                     was known; writes never                        the loss of its quorum
//	KeepShowing … Heal   a znode that is gone                           a server that has lost a
//	                                                                    transaction
//	SetSessionTimeouts   other bounds at its next handshake             a changed zoo.cfg
//
// And those of the whole ensemble:
//
//	SlowCommits          writes that take effect late, and everything   a slow disk of the leader's
//	                     behind them on the connection
//	SlowHandshakes       an accepted connection, and a late answer      a loaded server
//	ElectLeader          a closed connection, then a new epoch          a leader that went away
//
// [Server.Put], [Server.Delete], [Server.SetSequence] and [Server.Reap] change the tree as
// somebody else might; [Server.Seed] begins with a tree, [Server.OpenSession] with the
// leftovers of somebody who has crashed. [Server.Inject] is for what has no name here: a rule sees every
// request before it is executed, can answer it with an error, lose or delay it, and can
// cause any of the above at just that moment.
//
// To see what a client did, [Server.Observe] logs its requests, and [Server.Sessions],
// [Server.Children], [Server.Get] and [Server.Dump] show what is there; a test that has
// failed shows the latest requests by itself. [Server.RequireIdle] at the end of a test
// finds what the program has not given back.
//
// # What it does not do
//
//   - Requests that no recipe needs are answered with Unimplemented, as a real server
//     answers one that it does not know, and the connection ends: the counts and lists of
//     znodes below a path, reconfiguration, SASL.
//   - No four-letter words, no admin server, no quotas, no read-only mode.
//   - No disk: when the server is closed, all is gone. Stop and Restart keep everything.
//   - An ensemble shares one tree: its servers never lag behind each other unless they
//     are isolated. An election takes no time.
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
