package recipes

// WithEnsembleTracking follows the configuration of the ensemble, which servers with dynamic reconfiguration (ZooKeeper 3.5 and later) keep
// in /zookeeper/config. Connect returns once the configuration was read, or refused. From then on, the client connects to the servers in
// the configuration. It uses servers that join, and leaves servers that leave. Leases outlive both. If the client is connected to a server
// that leaves, the client reconnects as soon as another member takes connections.
//
// The configuration must have an address for clients for each server, as server.1=zk1:2888:3888;2181 in zoo.cfg, and with [WithTLS] a
// second one for TLS. The addresses must be reachable for the client. A server that takes clients on all its addresses is reached by the
// host before the ports of the quorum. Names stay names, and are looked up again at each reconnect. The client still tries the servers
// given to Connect, under their names, except those that left. Those that are no members are the last resort, but before members that
// never answered, whose addresses may lead nowhere. A server is left once per session timeout at most. The chroot or namespace stays.
//
// A configuration of version 0, on servers that do not reconfigure, is the zoo.cfg of the one server that shows it. Its addresses are added
// to the servers to try, and no server leaves by it.
//
// A configuration without these addresses, or that the client may not read, is ignored, and logged once at Warn.
func WithEnsembleTracking() Option {
	return func(cfg *config) error {
		cfg.isTracking = true
		return nil
	}
}
