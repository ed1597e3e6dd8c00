package edges_test

import (
	"encoding/binary"
	"hash/adler32"
	"math"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// counted is a container with one child, whose next sequential child gets a number.
type counted struct {
	path string
	next int32
}

// snapshot is a server's initial snapshot, in the format of FileSnap.java: a header, no sessions, only the open ACL,
// the znodes, a checksum.
func snapshot(dirs ...counted) []byte {
	e := proto.NewEncoder().
		Raw([]byte("ZKSN")).Int32(2).Int64(-1). // magic, version, database
		Int32(0).                               // sessions
		Int32(0)                                // lists of rights
	znode(e, "", 0, int32(len(dirs))+1)
	znode(e, "/zookeeper", 0, 1)
	znode(e, "/zookeeper/quota", 0, 0)
	for _, dir := range dirs {
		znode(e, dir.path, math.MinInt64, dir.next) // this owner marks a container
		znode(e, dir.path+"/config", 0, 0)
	}
	e.String("/") // the end of the znodes
	body := e.Body()
	return append(binary.BigEndian.AppendUint64(body, uint64(adler32.Checksum(body))), 0, 0, 0, 1, '/')
}

func znode(e *proto.Encoder, path string, owner int64, cversion int32) {
	const open, zxid, moment = -1, 1, 1
	e.String(path).Buffer([]byte{}).Int64(open).
		Int64(zxid).Int64(zxid).Int64(moment).Int64(moment). // created, modified
		Int32(0).Int32(cversion).Int32(0).                   // versions of data, children and rights
		Int64(owner).Int64(zxid)
}
