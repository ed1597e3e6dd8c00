package session

import (
	"context"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// anyVersion of a znode's data.
const anyVersion = -1

// listCall lists the children of a directory.
func listCall(dir string) *call {
	return &call{Request: wire.Request{Op: proto.OpGetChildren2, Path: dir}, what: "list the children of", where: dir}
}

// readCall reads a znode.
func readCall(path string) *call {
	return &call{Request: wire.Request{Op: proto.OpGetData, Path: path}, what: "read", where: path}
}

// deleteCall deletes a znode.
func deleteCall(path string, version int32) *call {
	return &call{Request: wire.Request{Op: proto.OpDelete, Path: path, Version: version}, what: "delete children of", where: zkutil.ParentOf(path)}
}

// Write sets the data of a znode of any version.
func (s *Session) Write(ctx context.Context, path string, data []byte) error {
	_, err := s.run(ctx, &call{
		Request: wire.Request{Op: proto.OpSetData, Path: path, Data: data, Version: anyVersion},
		what:    "write", where: path,
	})
	return err
}
