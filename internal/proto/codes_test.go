package proto

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Each operation has the name of ZooKeeper's documentation, and another number has its number.
func TestNamesOfOperations(t *testing.T) {
	for op, name := range map[int32]string{
		OpCreate: "create", OpDelete: "delete", OpExists: "exists", OpGetData: "getData", OpSetData: "setData", OpGetACL: "getACL", OpSetACL: "setACL",
		OpGetChildren: "getChildren", OpSync: "sync", OpPing: "ping", OpGetChildren2: "getChildren2", OpCheck: "check", OpMulti: "multi",
		OpCreate2: "create2", OpReconfig: "reconfig", OpCheckWatches: "checkWatches", OpRemoveWatches: "removeWatches",
		OpCreateContainer: "createContainer", OpCreateTTL: "createTTL", OpMultiRead: "multiRead", OpAuth: "auth", OpSetWatches: "setWatches",
		OpSASL: "sasl", OpSetWatches2: "setWatches2", OpAddWatch: "addWatch", OpWhoAmI: "whoAmI", OpCreateSession: "connect", OpCloseSession: "close",
		99: "op 99",
	} {
		require.Equal(t, name, OpName(op))
	}
}
