// Package zktest provides an in-process ZooKeeper for tests: one server, or an ensemble
// of several. It needs neither Java nor a container nor a disk, starts in less than a
// millisecond, and can inject any of the faults below.
//
// Nothing is mocked. The server speaks ZooKeeper's protocol, and the program under test
// connects with its usual client:
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
// The names of faults, operations and dialects may grow and change in a minor version of this module, because they
// follow ZooKeeper.
//
// Package zkclient replaces the lines that connect and close by a single call, in a
// bubble too. Programs, such as demos, use [Start] instead of [NewServer]. The package
// serves any ZooKeeper client, not only the recipes of this module.
//
// # Protocol
//
// The server speaks the protocol of ZooKeeper 3.8: sessions with handshake, reconnect,
// ping, expiry and close; create in all modes (persistent, ephemeral, sequential,
// container, TTL), delete, exists, get, set, children, multi with check, multiRead, sync;
// ACLs of the schemes world, digest, ip, sasl, x509 and auth, enforced; logins over SASL with
// DIGEST-MD5, see [WithSASL]; one-shot, persistent and
// recursive watches, their removal, and their renewal after a reconnect; TLS. So the
// server works for the recipes of this module, for Curator's, for kazoo's and for any
// other client that needs no more. Zxids, versions, sequence numbers, error codes and
// stats equal a real server's. Each session is served in order. As on a real server,
// frames are limited to a megabyte. [WithDialect] makes the server behave like another
// release of ZooKeeper, or like a ClickHouse Keeper. Of the four-letter words the server
// answers ruok, srvr, conf and cons; in srvr it calls itself zktest.
//
// A session expires at the end of the tick in which its timeout, counted from the last sign of life, runs out. A tick
// lasts 50 ms here, and timeouts from 100 ms on are granted, so that tests need not wait. Options change these times
// and the number of servers. Like a real server, this server accepts znodes with a TTL only on request (see
// [WithTTLNodes]).
//
// # Virtual time
//
// In a bubble of [testing/synctest] the server uses the bubble's clock. A test of half a
// minute of events then takes a millisecond, and can compare times exactly. Sockets do
// not work in a bubble, so clients connect through [Server.Dialer], as the clients of
// package zkclient do; for other clients, the address names the dialer. The following
// test is complete. The network of a lock's holder falls silent, and the holder stops
// before the next one gets the lock:
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
// The faults of the first group take the ids of sessions, or affect all sessions if no id is given (Expire needs an
// id; ExpireAll expires all sessions). The faults of the second group take the addresses of servers, or affect all
// servers. An id or an address that the server never assigned causes a panic, so that no test passes because its
// fault had no target.
//
//	fault                effect on a client                             comparable to
//	Expire, ExpireAll    the session is reported expired at the next    a pause longer than the session
//	                     handshake
//	Disconnect           a closed connection; the session lives         a restarted proxy
//	Partition … Heal,    silence without a reset; requests sent in the  a pulled cable, a firewall
//	HealSessions         meantime arrive after Heal
//	DropReply            the request is executed, and the connection    a lost packet
//	                     ends instead of an answer
//	DropRequest          the same, but nothing is executed              a lost packet
//	DropAnswer           the request is executed and gets no answer;    a defect
//	                     all others are answered
//	DropEvent            the watch is used up without a notification    a defect
//	Delay                late answers, in order                         a loaded server
//	SetBandwidth         answers that trickle in                        a slow link
//
//	PartitionFrom …      silence on the way to one server               a broken route
//	Heal, HealSessions
//	Stop … Restart       refused connections; znodes and sessions       a rolling restart
//	                     are kept
//	Stop of half of the  the other servers hang up, too, at every       a lost quorum
//	servers or more      handshake; sessions do not age
//	Freeze … Heal        accepted connections without an answer         a paused machine
//	Isolate … Heal       pings, reads and sync answered from old        a server that did not notice
//	                     data; writes never answered                    the loss of its quorum
//	KeepShowing … Heal   a deleted znode that the server still shows    a server that lost a
//	                                                                    transaction
//	SetSessionTimeouts   other timeouts granted at the next handshake   a changed zoo.cfg
//
// The faults of the third group affect the whole ensemble:
//
//	SlowCommits          writes that take effect late, and delay all    a slow disk on the leader
//	                     later requests on the connection
//	SlowHandshakes       an accepted connection, and a late answer      a loaded server
//	ElectLeader          a closed connection, then a new epoch          a failed leader
//	Backup … Restore     a closed connection, then either handshakes    a restored backup
//	                     that are refused by hanging up, or the
//	                     session as of the backup
//	Wipe                 the same, on servers without a znode           lost disks
//
// [Server.Put], [Server.Delete], [Server.SetSequence] and [Server.Reap] change the tree as another client might;
// [Server.Seed] creates an initial tree, and [Server.OpenSession] a session like that of a crashed client.
// [Server.Inject] is for all other faults. A rule sees every request before the server executes it, can answer the
// request with an error, lose or delay it, and can cause any of the faults above at exactly that moment.
//
// To see a client's actions, use [Server.Observe], which logs requests, and
// [Server.Sessions], [Server.Children], [Server.Get] and [Server.Dump], which show the
// server's state. A failed test shows the latest requests in its log.
// [Server.RequireIdle] at the end of a test finds leaked ephemeral znodes and watches.
//
// # Limits
//
//   - Requests that no recipe needs are answered with Unimplemented, and the connection ends, as on a real server that
//     does not know an operation. These are the counts and lists of znodes below a path, and reconfiguration.
//     [WithDialect] and [WithUnknownOps] add operations to this list, and change the server's answer to them.
//   - Logins and ACLs know the schemes named above and no other, and there is no superuser.
//   - The answers to four-letter words lack the numbers of packets and their latencies.
//   - No admin server, no quotas, no read-only mode.
//   - No disk: Close discards all data. Stop and Restart keep everything, Wipe and Restore
//     replace everything.
//   - An ensemble shares one tree: its servers never lag behind each other unless they
//     are isolated. An election takes no time.
//
// # Conformance
//
// The same suite of protocol cases runs against this server and, in the module
// integration, against ZooKeeper 3.8, and expects the same results, error codes, stats
// and watch events, in the same order. A random sequence of a hundred thousand operations
// from several sessions is compared step by step, too. The test suites of go-zookeeper and
// kazoo run against this server every night; a list in integration/cmd/suites names the
// tests that are out by design. Any difference between this server and a real one in the
// features listed under "Protocol" is a bug.
//
// # Concurrency
//
// All methods, including those of [Log], may be called from any goroutine. Rules run without any lock held, and may
// call any method but Close. A fault takes effect before its method returns. Close ends every connection, and returns
// when every goroutine of the server ends; inside a bubble, close the clients inside the bubble, too.
package zktest
