package zkutil

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	"github.com/go-zookeeper/zk"
)

// createProtected creates an ephemeral-sequential znode dir/_c_<uuid>-<prefix> and
// the parents it needs, and returns its path. Whatever goes wrong, it leaves
// nothing behind: a lost answer is followed by a search for the uuid, as in
// Curator's protected create, and a create that ctx abandoned is undone once its
// outcome is known. The znode found may belong to a session that is over: the
// caller checks its owner. What was made for a child that the server then refuses is
// removed: it reaps no container that never had a child.
func (s *Session) createProtected(ctx context.Context, dir, prefix string, data []byte) (string, error) {
	uuid := newUUID()
	path := Join(dir, protection+uuid+"-"+prefix)
	uncertain := false
	var made []string // parents
	created, err := retry(ctx, s.cfg.Retry, s.judge(ctx), func() (string, error) {
		if uncertain {
			found, err := s.search(ctx, dir, uuid, false)
			if err != nil {
				return "", err
			}
			uncertain = false
			if len(found) > 0 {
				for _, extra := range found[1:] {
					leaves(ctx, s.remove(extra).done)
				}
				return found[0], nil
			}
		}
		created, err := s.createIn(ctx, dir, path, data, &made, func(ctx context.Context, created string, err error) {
			switch {
			case err == nil:
				s.removeNow(ctx, created)
			case unanswered(err):
				s.purge(ctx, dir, uuid)
			}
		})
		// A call that was abandoned is undone by itself. Ask the error, not ctx, which may
		// have ended just after the connection.
		uncertain = unanswered(err) && !isAny(err, context.Canceled, context.DeadlineExceeded, ErrClosed)
		return created, err
	})
	if err != nil && refused(err) {
		s.unmake(ctx, made)
	}
	if err != nil && uncertain {
		s.tidy(ctx, func(ctx context.Context) { s.purge(ctx, dir, uuid) })
	}
	return created, err
}

// createIn creates one ephemeral-sequential znode, and dir first where it is
// missing. A container may be reaped at any time while it is empty, so that is
// repeated until the child has landed in it. It notes the parents that it has made.
func (s *Session) createIn(ctx context.Context, dir, path string, data []byte, made *[]string, undo func(context.Context, string, error)) (string, error) {
	for {
		created, err := do(ctx, s, request[string]{write: true, undo: undo, run: func(conn *zk.Conn) (string, error) {
			created, err := conn.Create(path, data, zk.FlagEphemeralSequential, s.cfg.ACL)
			return created, denied(err, "create children of", dir)
		}})
		if !errors.Is(err, zk.ErrNoNode) {
			return created, err
		}
		if err := s.makeContainer(ctx, dir, made); err != nil {
			return "", err
		}
	}
}

// unmake removes what makeContainer has made, the outermost last, unless somebody uses it
// by now: has put a child there, or data. There is one attempt: an empty znode more does
// no harm.
func (s *Session) unmake(ctx context.Context, made []string) {
	for _, dir := range slices.Backward(made) {
		if _, err := do(ctx, s, request[struct{}]{write: true, run: func(conn *zk.Conn) (struct{}, error) {
			return struct{}{}, conn.Delete(dir, 0)
		}}); err != nil {
			return
		}
	}
}

// makeContainer creates dir and its missing ancestors, the deepest first: one that
// exists is never touched, for its ACL may forbid it. Servers that have no
// containers (before 3.5) get persistent znodes, as with Curator. It notes those that
// it has made, the outermost first.
func (s *Session) makeContainer(ctx context.Context, dir string, made *[]string) error {
	create := func(flag int32) error {
		_, err := do(ctx, s, request[string]{write: true, run: func(conn *zk.Conn) (string, error) {
			if flag == zk.FlagContainer {
				return conn.CreateContainer(dir, []byte{}, flag, s.cfg.ACL)
			}
			return conn.Create(dir, []byte{}, flag, s.cfg.ACL)
		}})
		return denied(err, "create children of", parentOf(dir))
	}
	for {
		err := create(zk.FlagContainer)
		if unimplemented(err) {
			err = create(zk.FlagPersistent)
		}
		switch parent, _ := split(dir); {
		case err == nil:
			*made = append(*made, dir)
			return nil
		case errors.Is(err, zk.ErrNodeExists): // made by somebody else, even if once by us
			*made = slices.DeleteFunc(*made, func(ours string) bool { return ours == dir })
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

// search lists the children of dir that carry uuid. The sync before it makes the
// server catch up: after a reconnect it may lag behind the one that executed the
// create.
func (s *Session) search(ctx context.Context, dir, uuid string, cleanup bool) ([]string, error) {
	t, err := s.enter(ctx, cleanup)
	if err != nil {
		return nil, err
	}
	children, err := launch(ctx, s, t, request[[]string]{cleanup: cleanup, run: func(conn *zk.Conn) ([]string, error) {
		children, err := syncedChildren(conn, t.line, dir)
		return children, denied(err, "list the children of", dir)
	}})
	if errors.Is(err, zk.ErrNoNode) {
		return nil, nil
	}
	var found []string
	for _, child := range children {
		if strings.HasPrefix(child, protection+uuid+"-") {
			found = append(found, Join(dir, child))
		}
	}
	return found, err
}

// purge removes every child of dir that carries uuid, however long that takes.
func (s *Session) purge(ctx context.Context, dir, uuid string) {
	found, err := retry(ctx, s.cfg.Retry.patient(), transient, func() ([]string, error) {
		return s.search(ctx, dir, uuid, true)
	})
	if err != nil && ctx.Err() == nil {
		s.log(slog.LevelWarn, "search for an abandoned znode failed", "path", dir, "err", err)
	}
	for _, path := range found {
		s.removeNow(ctx, path)
	}
}
