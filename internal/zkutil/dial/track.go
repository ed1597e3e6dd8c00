package dial

import (
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"
)

// The configuration of the ensemble, which the servers keep in a znode, decides which servers to try:
//
//   - A server that joins is tried like any other from the next attempt on. The connection stays.
//   - A server that leaves is not tried any more. The session leaves it as well, once a member takes connections.
//   - A configuration that can't be used changes nothing.
//   - A configuration older than the latest is of a server that lags behind, and is ignored, unless the session is another one:
//     servers that were restored count from the beginning.
//   - A configuration of version 0 is the zoo.cfg of the one server that shows it, while the servers do not reconfigure. The next server may
//     show another. It adds servers to those to try, and no server leaves by it.

// ConfigPath is the znode of the configuration (ZooDefs.CONFIG_NODE).
const ConfigPath = "/zookeeper/config"

// Tracker makes the servers to try follow the configuration of the ensemble. It belongs to one goroutine.
type Tracker struct {
	d         *Dialer
	sessionID int64 // in which the configuration was read
	latest    Members
	problem   string // why the configuration is not followed; "": it is
}

// Track returns a Tracker that knows no configuration yet.
func (d *Dialer) Track() *Tracker { return &Tracker{d: d} }

// Apply follows the configuration that the session with an id read. It returns the servers if they are others than before. The
// error is a new reason why the configuration is not followed.
func (t *Tracker) Apply(config []byte, sessionID int64) (changed []string, err error) {
	next, err := ParseMembers(config, t.d.hasTLS)
	switch {
	case err != nil:
		return nil, t.newProblem(err)
	case len(next.Addresses) < next.Total || next.Total == 0:
		return nil, t.newProblem(fmt.Errorf("the configuration has the client addresses of %d of %d servers: a server has one in zoo.cfg as server.N=…;port, not as clientPort (with TLS the second behind the semicolon)", len(next.Addresses), next.Total))
	case sessionID == t.sessionID && next.Version < t.latest.Version:
		return nil, nil
	}
	t.problem = ""
	slices.Sort(next.Addresses)
	if next.Version == 0 {
		if t.d.Suggest(next.Addresses) {
			return next.Addresses, nil
		}
		return nil, nil
	}
	isSame := slices.Equal(next.Addresses, t.latest.Addresses)
	t.sessionID, t.latest = sessionID, next
	if isSame {
		return nil, nil
	}
	t.d.Follow(next.Addresses)
	return next.Addresses, nil
}

// Refused explains why a server does not show the configuration. It returns nil for the same reason as before.
func (t *Tracker) Refused(err error) error {
	if errors.Is(err, zk.ErrNoNode) {
		err = fmt.Errorf("the servers have no %s, which needs ZooKeeper 3.5: %w", ConfigPath, err)
	}
	return t.newProblem(err)
}

// newProblem returns a reason why the configuration is not followed, unless it is the same as before.
func (t *Tracker) newProblem(why error) error {
	if t.problem == why.Error() {
		return nil
	}
	t.problem = why.Error()
	return why
}

// Members returns the addresses of the members, nil while they are unknown.
func (t *Tracker) Members() []string { return t.latest.Addresses }
