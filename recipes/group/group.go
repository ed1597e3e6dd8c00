package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/leftovers"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/shared"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/znodes"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/option"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// Group is a group of processes on a path. Create it with [New]. A Group that joined leaves with Leave, or with its
// client.
type Group struct {
	base recipe.Base
	id   string
	path string // of the own znode
	seat *seat  // of the ID among the groups of the client

	mu         sync.Mutex  // protects the fields below
	membership *membership // the present one; nil: none
	left       *membership // the latest that ended, whose znode may still exist; nil if none
	trouble    error       // see Err
	changes    zkutil.Changes
}

// membership is the time from Join to Leave.
type membership struct {
	cancel context.CancelFunc
	done   chan struct{}   // closed at the end of its goroutine
	gone   <-chan struct{} // closed when the znode is deleted; set before done is closed; nil if there was none
	before *membership     // the one before, whose znode may still exist; read after done, if gone is nil; nil if none

	// Guarded by Group.mu.
	data         []byte
	version      int // counts the changes of data
	isRegistered bool
	hasZnode     bool // a znode may exist; used by the goroutine alone
}

// Member is a member of a group.
type Member struct {
	ID   string
	Data []byte // of Join; nil if an ACL forbids reading it
}

// Option configures a [Group], in New alone.
type Option func(*config) error

type config struct{ id string }

// WithID sets the ID of the member, which must be unique in the group. It is the name of the member's znode, as in Curator: at most 1,024
// bytes, without a slash. The default is the id of the client, see recipes.WithID, with a colon for each slash: mostly host:pid.
func WithID(id string) Option {
	return func(cfg *config) error {
		cfg.id = id
		switch {
		case id == "":
			return errors.New("id: empty")
		case len(id) > maxID:
			return fmt.Errorf("id of %d bytes: more than %d", len(id), maxID)
		case strings.Contains(id, "/"):
			return fmt.Errorf("id %q: has a slash", id)
		}
		return nil
	}
}

const (
	maxID   = 1024
	maxData = 512 << 10
)

// New returns a group on path, an absolute path below the client's namespace. New sends nothing to the server. The error is
// ErrInvalidArgument for an ID that can't be the name of a znode.
func New(c *recipes.Client, path string, opts ...Option) (*Group, error) {
	base, err := recipe.New(c, path, queue.Queue{Recipe: "group"})
	if err != nil {
		return nil, err
	}
	cfg := config{id: strings.ReplaceAll(string(base.Queue.Session.ID()), "/", ":")}
	if err := option.Apply(&cfg, opts); err != nil {
		return nil, base.InvalidArgument("new", err)
	}
	g := &Group{base: base, id: cfg.id, path: zkutil.Join(base.Queue.Dir, cfg.id)}
	if err = zkutil.ValidatePath(g.path); err == nil {
		err = queue.CheckPath(g.path)
	}
	if err != nil {
		return nil, base.InvalidArgument("new", fmt.Errorf("id %q: %w", cfg.id, err))
	}
	g.seat = shared.Value(base.Queue.Session.Shared(), seatKey(g.path), func() *seat { return &seat{} })
	return g, nil
}

// ID returns the ID of the member.
func (g *Group) ID() string {
	g.base.MustCheck("id")
	return g.id
}

// Join makes this process a member with data, which may be nil, and returns at once. Until Leave or Close of the client, the member is
// registered whenever a server permits: after an expired session, a deletion of the znode, or a refusal, the member registers again.
// If the process is already a member, Join changes its data. [Group.Await] waits for the registration.
//
// While another session has the same ID, the member waits. Usually that session belongs to the same process before a restart, and
// has yet to expire.
//
// The error is ErrInvalidArgument for more than 512 KiB, or ErrClosed.
func (g *Group) Join(data []byte) error {
	if err := g.base.Check("join"); err != nil {
		return err
	}
	if len(data) > maxData {
		return g.base.InvalidArgument("join", fmt.Errorf("data of %d bytes: more than %d", len(data), maxData))
	}
	s := g.base.Queue.Session
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.Context().Err() != nil {
		return g.base.OpError("join", recipes.ErrClosed)
	}
	defer g.changes.AnnounceLocked()
	if m := g.membership; m != nil {
		m.data, m.isRegistered = slices.Clone(data), false
		m.version++
		return nil
	}
	ctx, cancel := context.WithCancel(s.Context())
	m := &membership{cancel: cancel, done: make(chan struct{}), before: g.left.withZnode(), data: slices.Clone(data)}
	if !s.Background(func(context.Context) {
		defer close(m.done)
		s.Retain() // so that the session re-reads the watched znode
		defer s.Release()
		g.stayRegistered(ctx, m)
	}) {
		cancel()
		return g.base.OpError("join", recipes.ErrClosed)
	}
	g.membership = m
	return nil
}

// Await waits until the member is registered with the latest data. When ctx ends, Await returns the error of ctx joined with the latest
// trouble, see Err. Other errors are ErrNotStarted without a Join, or after Leave, and ErrClosed.
func (g *Group) Await(ctx context.Context) error {
	if err := g.base.Check("await"); err != nil {
		return err
	}
	for {
		g.mu.Lock()
		m, trouble, changed := g.membership, g.trouble, g.changes.ChangedLocked()
		isRegistered := m != nil && m.isRegistered
		g.mu.Unlock()
		switch {
		case g.base.Queue.Session.Context().Err() != nil:
			return g.base.OpError("await", recipes.ErrClosed)
		case m == nil:
			return g.base.OpError("await", recipes.ErrNotStarted)
		case isRegistered:
			return nil
		case ctx.Err() != nil:
			return g.base.OpError("await", zkutil.Both(zkutil.EndOf(ctx), trouble))
		}
		select {
		case <-changed:
		case <-ctx.Done():
		case <-g.base.Queue.Session.Context().Done():
		}
	}
}

// Err returns the reason for which the member is not registered, a refusal of the server, such as zk.ErrNoAuth, or ErrTaken. The result
// is nil once the member is registered, before Join, and after Leave. A lost connection does not count (see recipes.Client.State).
func (g *Group) Err() error {
	if err := g.base.Check("join"); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.trouble == nil || g.membership == nil {
		return nil
	}
	return g.base.OpError("join", g.trouble)
}

// ErrTaken is returned by Err while another member has the ID, in another session or in this one.
var ErrTaken = errors.New("another member has this id")

// Leave ends the membership, and returns once the znode is deleted, or at once if none was ever created. After the operation timeout, Leave
// returns ErrNodeNotDeleted, and the deletion continues in the background. Leave waits again when called again, and returns nil if the
// process was no member.
func (g *Group) Leave() error {
	if err := g.base.Check("leave"); err != nil {
		return err
	}
	s := g.base.Queue.Session
	g.mu.Lock()
	if g.membership != nil {
		g.left = g.membership
	}
	m := g.left
	g.membership, g.trouble = nil, nil
	g.changes.AnnounceLocked()
	g.mu.Unlock()
	if m == nil {
		return nil
	}
	m.cancel()
	<-m.done
	for m.gone == nil { // it waited for the end of the previous one
		if m = m.before; m == nil {
			return nil
		}
		<-m.done
	}
	limit := time.NewTimer(s.Config().OperationTimeout)
	defer limit.Stop()
	select {
	case <-m.gone:
	case <-s.Context().Done(): // the server deletes the znode with the session
	case <-limit.C:
		return g.base.OpError("leave", fmt.Errorf("%w after %v, still retrying", recipes.ErrNodeNotDeleted, s.Config().OperationTimeout))
	}
	return nil
}

// withZnode returns the latest membership up to m that may have had a znode, nil if none has.
func (m *membership) withZnode() *membership {
	for m != nil && zkutil.IsClosed(m.done) && m.gone == nil {
		m = m.before
	}
	return m
}

// stayRegistered keeps the znode in place until ctx ends, and then begins to delete it.
func (g *Group) stayRegistered(ctx context.Context, m *membership) {
	s := g.base.Queue.Session
	if !g.takeSeat(ctx, m) {
		return
	}
	m.before = nil             // its znode is deleted
	undos := &leftovers.List{} // of abandoned creates
	ctx = leftovers.With(ctx, undos)
	pace := s.Config().Retry.Patient().AfterRefusals().Pace()
	for ctx.Err() == nil {
		g.mu.Lock()
		data, version, changed := m.data, m.version, g.changes.ChangedLocked()
		g.mu.Unlock()
		before := s.Snapshot()
		own, err := g.register(ctx, m, data, version)
		if err != nil {
			g.recordTrouble(ctx, m, err)
			pause, _ := pace.Next()
			zkutil.Pause(ctx, pause)
			continue
		}
		pace.Reset()
		awaitChange(ctx, s, before, own, changed)
		s.ReleaseWatch(own)
	}
	if !m.hasZnode { // no server received a create
		g.seat.leave(m)
		m.gone = ctx.Done()
		return
	}
	m.gone = g.remove(context.WithoutCancel(ctx), m, undos)
}

// takeSeat waits until no other group of the client has the ID. It returns false if ctx ends first.
func (g *Group) takeSeat(ctx context.Context, m *membership) bool {
	for {
		isTaken, changed := g.seat.take(m)
		if isTaken {
			return true
		}
		g.recordTrouble(ctx, m, ErrTaken)
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// remove begins to delete the znode, and then leaves the seat to the next member. gone is closed once the znode is
// deleted.
func (g *Group) remove(ctx context.Context, m *membership, undos *leftovers.List) (gone <-chan struct{}) {
	s := g.base.Queue.Session
	deleted, done := znodes.RemoveNamed(ctx, s, g.path), make(chan struct{})
	s.Background(func(ctx context.Context) { // ends with the deletion, or with the session
		for _, ended := range append(undos.Pending(), deleted) { // a later undo would delete the znode of the next member
			select {
			case <-ended:
			case <-ctx.Done():
				return
			}
		}
		g.seat.leave(m)
		close(done)
	})
	return done
}

// awaitChange waits until the znode, the session or the membership may have changed, or ctx ends.
func awaitChange(ctx context.Context, s *session.Session, before session.Snapshot, own *session.Watch, changed <-chan struct{}) {
	for {
		now := s.Snapshot()
		if now.ID != before.ID || own.HasFired() || zkutil.IsClosed(changed) || ctx.Err() != nil {
			return
		}
		select {
		case <-own.Fired():
		case <-now.Changed:
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// register creates the znode with the data, unless the znode exists, and returns a watch on the znode, even on the znode of another
// session.
func (g *Group) register(ctx context.Context, m *membership, data []byte, version int) (*session.Watch, error) {
	s := g.base.Queue.Session
	for {
		node, isOwn, own, err := znodes.ReadNamed(ctx, s, g.path)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			g.setRegistered(m, version, false)
			mayExist, err := znodes.CreateNamed(ctx, s, g.path, data)
			m.hasZnode = m.hasZnode || mayExist
			if err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		case !isOwn && isLasting(node):
			g.recordTrouble(ctx, m, fmt.Errorf("%w: %s", recipes.ErrNotEphemeral, g.path))
			return own, nil
		case !isOwn:
			g.recordTrouble(ctx, m, ErrTaken)
			return own, nil
		case string(node.Data) != string(data):
			m.hasZnode = true
			s.ReleaseWatch(own)
			if err := znodes.WriteNamed(ctx, s, g.path, data); err != nil {
				return nil, err
			}
		default:
			m.hasZnode = true
			g.setRegistered(m, version, true)
			return own, nil
		}
	}
}

// setRegistered records whether the znode is in place with the latest data.
func (g *Group) setRegistered(m *membership, version int, isRegistered bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.membership != m || m.version != version || m.isRegistered == isRegistered && g.trouble == nil {
		return
	}
	m.isRegistered = isRegistered
	if isRegistered {
		g.trouble = nil
	}
	g.changes.AnnounceLocked()
}

// recordTrouble makes Err return err, and logs err unless the previous trouble was the same.
func (g *Group) recordTrouble(ctx context.Context, m *membership, err error) {
	if ctx.Err() != nil || errors.Is(err, recipes.ErrClosed) {
		return
	}
	g.mu.Lock()
	isNew := g.membership == m && !queue.IsSameFailure(err, g.trouble)
	if g.membership == m {
		g.trouble, m.isRegistered = err, false
	}
	g.mu.Unlock()
	if isNew {
		g.base.Queue.Session.Log(slog.LevelWarn, "can't register the member; retrying", "path", g.base.Path, "id", g.id, "err", err)
	}
}
