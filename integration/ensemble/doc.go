// Package ensemble starts ZooKeeper servers in containers for tests and takes them through faults: kill, stop, start
// again, pause, partition, or any command run inside a node.
//
//	e := ensemble.New(t, ensemble.Config{Nodes: 3})
//	conn, events, err := zk.Connect(e.Servers(), 4*time.Second)
//
// A package that needs one plain server uses [Shared], which starts one for the whole test binary, with
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(ensemble.Main(m)) }
//
// # Image
//
// The official image (OfficialImage) is used if it is present or can be pulled. Otherwise package image builds one from
// Debian packages, once. ZK names the Debian suite, and with it the release of ZooKeeper. ZKRECIPES_IMAGE names an image
// to use instead of both. Any image with the official one's paths works: /conf/zoo.cfg, /data/myid and JVMFLAGS. The
// official image has no iptables; tests of partitions need the built one.
//
// # Environment
//
// ZKRECIPES_SERVERS (host:port,…) makes a request for one ordinary node use these servers and no containers. Faults are
// refused on them with ErrExternal.
//
// Two settings of testcontainers-go are made before its first use, unless the environment has them already.
// TESTCONTAINERS_RYUK_DISABLED becomes true where the image of its reaper is neither present nor pulled.
// TESTCONTAINERS_HOST_OVERRIDE becomes 127.0.0.1 where this process runs in a container together with the Docker engine:
// testcontainers would look for published ports at the default gateway.
//
// # Leftovers
//
// Labels of containers and networks name the process that started them. Before the first start in a process, the
// containers and networks of dead processes of this host are removed. Test binaries that run side by side do not touch
// each other's.
//
// # Concurrency
//
// All methods may be called from any goroutine. Nodes are numbered from 0, in the order of Servers.
package ensemble
