package session

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// CreateProtectedAs creates the ephemeral znode dir/_c_<uuid>-<name>, to which the server appends no
// number, and returns its path. dir has to exist. When it fails it leaves nothing behind:
//
//   - After a lost answer, ErrNodeExists means that the create was executed, because no other znode has
//     the uuid. The znode may belong to a session that has expired: the caller checks the owner.
//   - A create that ctx has abandoned is undone once its outcome is known.
//
// The znode takes BytesOf(dir, …) from the place, with the number at the end of name in place of the server's.
func (s *Session) CreateProtectedAs(ctx context.Context, place *Place, dir, name string, data []byte) (string, error) {
	path := zkutil.Join(dir, Protection+newUUID()+"-"+name)
	charge, err := place.begin(len(path) + lengthField)
	if err != nil {
		return "", err
	}
	isUncertain := false                               // a create may have been executed
	undo := func(ctx context.Context, _ wire.Answer) { // an earlier attempt may have been executed
		s.removeAndWait(ctx, path)
		charge.end()
	}
	var latest *call
	_, err = Repeat(ctx, s, func() (string, error) {
		latest = &call{
			Request: wire.Request{Op: proto.OpCreate, Path: path, Data: data, ACL: s.cfg.ACL, Flags: zk.FlagEphemeral},
			what:    "create children of", where: dir, undo: undo,
		}
		a, err := s.run(ctx, latest)
		if isUncertain && errors.Is(err, zk.ErrNodeExists) {
			return path, nil
		}
		isUncertain = isUncertain || zkutil.IsUnanswered(err)
		return a.Path, err
	})
	switch {
	case latest.isAbandoned: // its undo ends the charge
	case err != nil && !isUncertain:
		charge.end()
	default:
		charge.settle(path)
		if err != nil {
			s.RemoveLater(ctx, path)
		}
	}
	return path, err
}
