package ensemble

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Paths and ports inside a node, as in the official image.
const (
	configPath   = "/conf/zoo.cfg"
	dataDir      = "/data"
	clientPort   = 2181
	quorumPort   = 2888
	electionPort = 3888

	defaultTickTime = 500 * time.Millisecond
	// maxSessionTimeout lifts the server's limit of 20 ticks, which at short ticks would cut ordinary timeouts.
	maxSessionTimeout = time.Minute
)

// Config says what to start. The zero value is one node with ticks of 500 ms, on which sessions last from 1 s to 1 min.
type Config struct {
	// Nodes is the number of servers; 0 means 1.
	Nodes int
	// TickTime is the server's unit of time; the shortest session lasts two ticks. 0 means 500 ms.
	TickTime time.Duration
	// JVMFlags are added to the server's command line, for example -Dznode.container.checkIntervalMs=1000 or
	// -Dzookeeper.forceSync=no.
	JVMFlags []string
	// Properties are added to zoo.cfg and win over the defaults. A secureClientPort is published; see SecureServers.
	Properties map[string]string
	// Files are put into every node before it starts, by absolute path; for example a key store.
	Files map[string][]byte
	// Env are environment variables of every server, in addition to those of the image.
	Env map[string]string
	// Suite is the Debian suite of the ZooKeeper, regardless of the environment; "" means the environment's.
	Suite string
	// Private asks for separate containers even if ZKRECIPES_SERVERS is set, for tests that inject faults.
	Private bool
}

func (c Config) withDefaults() Config {
	if c.Nodes == 0 {
		c.Nodes = 1
	}
	if c.TickTime == 0 {
		c.TickTime = defaultTickTime
	}
	return c
}

// ordinary reports whether any running server would do.
func (c Config) ordinary() bool {
	return c.Nodes <= 1 && c.TickTime == 0 && len(c.JVMFlags) == 0 && len(c.Properties) == 0 && len(c.Files) == 0 && len(c.Env) == 0 && c.Suite == "" && !c.Private
}

// zooCfg returns the server's configuration file, the same for every node.
func (c Config) zooCfg() []byte {
	properties := map[string]string{
		"tickTime":               strconv.FormatInt(c.TickTime.Milliseconds(), 10),
		"initLimit":              "10",
		"syncLimit":              "4",
		"maxSessionTimeout":      strconv.FormatInt(maxSessionTimeout.Milliseconds(), 10),
		"dataDir":                dataDir,
		"clientPort":             strconv.Itoa(clientPort),
		"maxClientCnxns":         "0",
		"admin.enableServer":     "false",
		"4lw.commands.whitelist": "*",
	}
	if c.Nodes > 1 {
		// The address of a restarted node may differ from the one in its configuration.
		properties["quorumListenOnAllIPs"] = "true"
		for i := range c.Nodes {
			properties[fmt.Sprintf("server.%d", i+1)] = fmt.Sprintf("%s:%d:%d", alias(i), quorumPort, electionPort)
		}
	}
	maps.Copy(properties, c.Properties)
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		fmt.Fprintf(&b, "%s=%s\n", key, properties[key])
	}
	return []byte(b.String())
}

// jvmFlags returns the value of JVMFLAGS.
//
// Addresses are not cached, found or not: nodes start concurrently, and a cached failure would delay the first quorum by
// ten seconds. An election waits for each silent peer for the connect timeout, 5 s by default, before it asks the next
// one.
func (c Config) jvmFlags() string {
	flags := []string{
		"-Xmx256m", "-XX:+UseSerialGC",
		"-Dsun.net.inetaddr.ttl=0", "-Dsun.net.inetaddr.negative.ttl=0",
		"-Dzookeeper.cnxTimeout=500",
		"-Dzookeeper.fastleader.maxNotificationInterval=1000",
		"-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
	}
	return strings.Join(append(flags, c.JVMFlags...), " ")
}

// alias is the name by which the nodes find node i.
func alias(i int) string { return fmt.Sprintf("zk%d", i+1) }
