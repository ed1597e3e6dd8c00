package zktest

import (
	"fmt"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// Dialect is a kind of server that speaks ZooKeeper's protocol.
type Dialect int

// The dialects. Each ZooKeeper stands for the latest release of its branch.
const (
	ZooKeeper38      Dialect = iota // the default
	ZooKeeper34                     // no create2, no containers, no removal of watches, and no later operation
	ZooKeeper35                     // no multiRead, and no persistent watches
	ZooKeeper36                     // as ZooKeeper38, but clients are notified of znodes that they may not read
	ZooKeeper37                     // as ZooKeeper36
	ZooKeeper39                     // as ZooKeeper38, but exists needs the permission to read
	ZooKeeper310                    // as ZooKeeper39, but containers that never had a child are reaped after five minutes
	ClickHouseKeeper                // see WithDialect
	Zetcd                           // see WithDialect
)

// WithDialect makes the server behave like another kind of server in every way that a
// client of this module can notice. [WithUnknownOps] after WithDialect replaces the list
// of lacking operations.
//
// A [ClickHouseKeeper] differs from a ZooKeeper as follows:
//
//   - No session is ever resumed. Every handshake begins a new session, without a password. The old session and its
//     ephemeral znodes exist until the session's timeout is over.
//   - Each ping is a transaction, and so is each sync. Reads do not extend a session.
//   - An unknown operation ends the connection without an answer. The list is that of
//     the oldest releases: create2, containers, TTLs, and every operation that sets or
//     removes watches without a read. MultiRead exists.
//   - Clients are notified of znodes that they may not read.
//   - The handshake does not refuse clients that saw later transactions.
//
// [Zetcd] is a ZooKeeper38 whose servers answer a multi that consists of checks alone by themselves, as the proxy zetcd
// does. No transaction is committed, and isolated servers answer it, too.
//
// Server.Stop then ends servers as a crash does. A ClickHouse Keeper that is shut down in order closes the sessions of
// its clients at once.
func WithDialect(d Dialect) Option {
	return func(c *config) error {
		t, ok := dialects[d]
		if !ok {
			return fmt.Errorf("zktest: no dialect %d", d)
		}
		c.traits = t
		return WithUnknownOps(t.unknown, t.lacking...)(c)
	}
}

// String returns the name of the server, with the version of a ZooKeeper.
func (d Dialect) String() string { return dialects[d].name }

// Lacks returns the operations that the server does not know.
func (d Dialect) Lacks() []Op { return slices.Clone(dialects[d].lacking) }

// traits are the differences between the dialects.
type traits struct {
	name    string
	lacking []Op
	unknown UnknownOp

	guardsExists   bool          // exists needs the permission to read, as getData does
	notifiesAll    bool          // even clients that may not read the znode
	reapUnused     time.Duration // the age at which a container that never had a child is reaped; 0: never
	endsWithLine   bool          // sessions can't be resumed
	commitsPings   bool          // pings are transactions, and reads do not extend a session
	answersChecks  bool          // a multi of checks alone is no transaction
	ignoresHistory bool          // the handshake accepts clients that saw later transactions
}

// extends reports whether a request extends its session.
func (t traits) extends(frame []byte) bool {
	if !t.commitsPings {
		return true
	}
	d := proto.NewDecoder(frame)
	d.Int32()
	op := Op(d.Int32())
	return d.Err() == nil && (op == OpPing || op == OpSync || op.isWrite())
}

// Operations by the release that introduced them.
var (
	opsFrom35 = []Op{OpCreate2, OpCheckWatches, OpRemoveWatches, OpCreateContainer, OpCreateTTL} //nolint:gochecknoglobals // a constant list
	opsFrom36 = []Op{OpMultiRead, OpSetWatches2, OpAddWatch}                                     //nolint:gochecknoglobals // a constant list
)

// dialects has the traits of each dialect. Sources:
//
//   - ZooKeeper's operations: ZooDefs.OpCode of the releases. Unknown operations:
//     UnimplementedRequestProcessor.
//   - Notifications: CVE-2024-23944, fixed in 3.8.4 and 3.9.2 alone.
//   - Containers without a child: ZOOKEEPER-4915, which sets the default of
//     znode.container.maxNeverUsedIntervalMs.
//   - The permission for exists: ZOOKEEPER-2590, and the conformance suite on 3.9.3.
//   - ClickHouse Keeper, in the repository ClickHouse/ClickHouse (see below).
//
// Sessions: KeeperTCPHandler::receiveHandshake discards the previous session id, and
// sendHandshake sends sixteen zero bytes as the password (src/Server/KeeperTCPHandler.cpp).
// Unknown operations: ZooKeeperRequestFactory::get and isOperationSupported throw in
// KeeperTCPHandler::receiveRequest, and runImpl ends the connection without an answer.
// Pings: ZooKeeperHeartbeatRequest::isReadRequest returns false, as ZooKeeperSyncRequest's
// and, but for MultiRead, ZooKeeperMultiRequest's (src/Common/ZooKeeper/ZooKeeperCommon.h).
// Expiry: KeeperStorage::processRequest extends the session on the replica that executes
// the request, and KeeperDispatcher::sessionCleanerTask closes dead sessions on the leader
// (src/Coordination). Sequence numbers: KeeperNodeStats::getSeqNum counts creates, as in
// ZooKeeper (KeeperStorageImpl.cpp, preprocess of ZooKeeperCreateRequest).
var dialects = map[Dialect]traits{ //nolint:gochecknoglobals // a constant table
	ZooKeeper34:  {name: "ZooKeeper 3.4", lacking: slices.Concat(opsFrom35, opsFrom36), notifiesAll: true},
	ZooKeeper35:  {name: "ZooKeeper 3.5", lacking: opsFrom36, notifiesAll: true},
	ZooKeeper36:  {name: "ZooKeeper 3.6", notifiesAll: true},
	ZooKeeper37:  {name: "ZooKeeper 3.7", notifiesAll: true},
	ZooKeeper38:  {name: "ZooKeeper 3.8"},
	ZooKeeper39:  {name: "ZooKeeper 3.9", guardsExists: true},
	ZooKeeper310: {name: "ZooKeeper 3.10", guardsExists: true, reapUnused: 5 * time.Minute},
	Zetcd:        {name: "zetcd", answersChecks: true},
	ClickHouseKeeper: {
		name: "ClickHouse Keeper", unknown: UnknownHangUp,
		lacking: slices.Concat(opsFrom35, []Op{OpSetWatches, OpSetWatches2, OpAddWatch}),

		notifiesAll: true, endsWithLine: true, commitsPings: true, ignoresHistory: true,
	},
}

// UnknownOp is a server's treatment of operations that it does not know.
type UnknownOp int

// The ways in which a server treats an operation that it does not know.
const (
	UnknownUnimplemented UnknownOp = iota // answer Unimplemented and end the connection, as ZooKeeper does; the default
	UnknownBadArguments                   // answer BadArguments, and continue the connection
	UnknownHangUp                         // end the connection without an answer
)

// WithUnknownOps creates a server that lacks some operations. The server treats these,
// and all operations that no server of this package knows, in the way given by how. For
// example, a ZooKeeper 3.4 lacks [OpCreate2], [OpCreateContainer], [OpRemoveWatches] and
// all later operations, and a ZooKeeper 3.6 lacks [OpWhoAmI].
func WithUnknownOps(how UnknownOp, lacking ...Op) Option {
	return func(c *config) error {
		if how < UnknownUnimplemented || how > UnknownHangUp {
			return fmt.Errorf("zktest: unknown operations: %d is no way to treat them", how)
		}
		c.unknown, c.lacking = how, map[Op]bool{}
		for _, op := range lacking {
			if !op.isWrite() && !op.isRead() || op == OpClose {
				return fmt.Errorf("zktest: no server lacks the operation %v", op)
			}
			c.lacking[op] = true
		}
		return nil
	}
}

// knows reports whether the server knows an operation.
func (c *config) knows(op Op) bool { return (op.isWrite() || op.isRead()) && !c.lacking[op] }
