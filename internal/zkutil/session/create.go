package session

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/wire"
)

// CreateProtected creates an ephemeral-sequential znode dir/_c_<uuid>-<prefix>, and the parents that
// are missing, and returns its path. When it fails it leaves nothing behind:
//
//   - After a lost answer it searches for the uuid, as Curator's protected create does. The znode that
//     it finds may belong to a session that has expired: the caller checks the owner.
//   - A create that ctx has abandoned is undone once its outcome is known.
//   - Parents that were made for a child which the server then refuses are removed, because the server
//     never reaps a container that has had no child.
func (s *Session) CreateProtected(ctx context.Context, dir, prefix string, data []byte) (string, error) {
	uuid := newUUID()
	path := zkutil.Join(dir, Protection+uuid+"-"+prefix)
	isUncertain := false // a create may have been executed
	var made []string    // parents
	created, err := Repeat(ctx, s, func() (string, error) {
		if isUncertain {
			found, err := s.searchProtected(ctx, dir, uuid, false)
			if err != nil {
				return "", err
			}
			isUncertain = false
			if len(found) > 0 {
				for _, extra := range found[1:] {
					s.RemoveLater(ctx, extra)
				}
				return found[0], nil
			}
		}
		created, err := s.createIn(ctx, dir, path, data, &made, func(ctx context.Context, created string, err error) {
			switch {
			case err == nil:
				s.removeAndWait(ctx, created)
			case zkutil.IsUnanswered(err):
				s.removeAllProtected(ctx, dir, uuid)
			}
		})
		// The undo of an abandoned call removes its znode. The error tells which call was abandoned,
		// not ctx, which may have ended just after the connection.
		isUncertain = zkutil.IsUnanswered(err) && !zkutil.IsAny(err, context.Canceled, context.DeadlineExceeded, zkutil.ErrClosed)
		return created, err
	})
	if err != nil && zkutil.IsRefused(err) {
		s.removeMadeParents(ctx, made)
	}
	if err != nil && isUncertain {
		s.cleanUp(ctx, func(ctx context.Context) { s.removeAllProtected(ctx, dir, uuid) })
	}
	return created, err
}

// createIn creates one ephemeral-sequential znode, and dir if it is missing. That is repeated until
// the child exists, because the server may reap a container at any time while it is empty. The
// parents that it has made are added to made.
func (s *Session) createIn(ctx context.Context, dir, path string, data []byte, made *[]string, undo func(context.Context, string, error)) (string, error) {
	for {
		created, err := runRequest(ctx, s, request[string]{isWrite: true, undo: undo, run: func(conn *zk.Conn) (string, error) {
			created, err := conn.Create(path, data, zk.FlagEphemeralSequential, s.cfg.ACL)
			return created, zkutil.Denied(err, "create children of", dir)
		}})
		if !errors.Is(err, zk.ErrNoNode) {
			return created, err
		}
		if err := s.makeContainer(ctx, dir, made); err != nil {
			return "", err
		}
	}
}

// removeMadeParents removes the znodes that makeContainer has made, the outermost last, unless
// somebody has put a child or data there. It tries once, because an empty znode does no harm.
func (s *Session) removeMadeParents(ctx context.Context, made []string) {
	for _, dir := range slices.Backward(made) {
		if _, err := runRequest(ctx, s, request[struct{}]{isWrite: true, run: func(conn *zk.Conn) (struct{}, error) {
			return struct{}{}, conn.Delete(dir, 0)
		}}); err != nil {
			return
		}
	}
}

// makeContainer creates dir, and the ancestors that are missing. It tries the deepest one first,
// because the ACL of an ancestor that exists may forbid a create. On servers that have no
// containers (before 3.5) it creates persistent znodes, as Curator does. The znodes that it has made
// are added to made, the outermost first.
func (s *Session) makeContainer(ctx context.Context, dir string, made *[]string) error {
	create := func(flag int32) error {
		_, err := runRequest(ctx, s, request[string]{isWrite: true, run: func(conn *zk.Conn) (string, error) {
			if flag == zk.FlagContainer {
				return conn.CreateContainer(dir, []byte{}, flag, s.cfg.ACL)
			}
			return conn.Create(dir, []byte{}, flag, s.cfg.ACL)
		}})
		return zkutil.Denied(err, "create children of", zkutil.ParentOf(dir))
	}
	for {
		err := create(zk.FlagContainer)
		if zkutil.IsUnimplemented(err) {
			err = create(zk.FlagPersistent)
		}
		switch parent, _ := zkutil.Split(dir); {
		case err == nil:
			*made = append(*made, dir)
			return nil
		case errors.Is(err, zk.ErrNodeExists): // somebody else has made it, even if we had made it before
			*made = slices.DeleteFunc(*made, func(path string) bool { return path == dir })
			return nil
		case errors.Is(err, zk.ErrNoNode) && parent != dir:
			if err := s.makeContainer(ctx, parent, made); err != nil {
				return err
			}
		default:
			return err
		}
	}
}

// searchProtected returns the paths of the children of dir whose names have uuid. A sync comes first,
// because after a reconnect the server may be behind the one that has executed the create.
func (s *Session) searchProtected(ctx context.Context, dir, uuid string, isCleanUp bool) ([]string, error) {
	t, err := s.enterGate(ctx, isCleanUp)
	if err != nil {
		return nil, err
	}
	children, err := runAdmitted(ctx, s, t, request[[]string]{isCleanUp: isCleanUp, run: func(conn *zk.Conn) ([]string, error) {
		children, err := wire.SyncedChildren(conn, t.line, dir)
		return children, zkutil.Denied(err, "list the children of", dir)
	}})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	var found []string
	for _, child := range children {
		if strings.HasPrefix(child, Protection+uuid+"-") {
			found = append(found, zkutil.Join(dir, child))
		}
	}
	return found, err
}

// removeAllProtected removes every child of dir whose name has uuid, until the session is closed.
func (s *Session) removeAllProtected(ctx context.Context, dir, uuid string) {
	found, err := zkutil.RepeatWhile(ctx, s.cfg.Retry.Patient(), zkutil.IsTransient, func() ([]string, error) {
		return s.searchProtected(ctx, dir, uuid, true)
	})
	if err != nil && ctx.Err() == nil {
		s.Log(slog.LevelWarn, "search for an abandoned znode failed", "path", dir, "err", err)
	}
	for _, path := range found {
		s.removeAndWait(ctx, path)
	}
}
