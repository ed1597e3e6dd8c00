package recipes

// WithEnsembleTracking follows the configuration of the ensemble, which servers with dynamic reconfiguration (ZooKeeper 3.5 and later)
// keep in /zookeeper/config. Connect returns once the configuration was read, or refused. From then on, the client connects to the servers in the
// configuration: a server that joins is used, and a server that leaves is left. Leases outlive both. If the client is
// connected to a server that leaves, the client reconnects as soon as another member takes connections.
//
// The configuration must have an address for clients for each server, as server.1=zk1:2888:3888;2181 in zoo.cfg, and with [WithTLS] a
// second one for TLS. The addresses must be reachable for the client. A server that takes clients on all its
// addresses is reached by the host before the ports of the quorum. Names stay names, and are looked up again at each
// reconnect. The servers given to Connect are the last resort when no member can be reached, except those that have left. The chroot
// or namespace stays.
//
// A configuration without these addresses, or that the client may not read, is ignored, and logged once at Warn. Not with
// [WithHostProvider].
func WithEnsembleTracking() Option {
	return func(cfg *config) error {
		cfg.TrackEnsemble = true
		cfg.connectOnly = append(cfg.connectOnly, "WithEnsembleTracking")
		return nil
	}
}
