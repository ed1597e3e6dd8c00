package semaphore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/permits"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/znodes"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// ErrSharedLimit is returned when the znode of a shared limit exists, but its content is not a limit:
// four bytes with a number that is not negative.
var ErrSharedLimit = errors.New("the znode of the shared limit holds no number")

// ErrAboveLimit is matched by the error of a request for more permits than a shared limit (see
// [InterProcessSemaphore.AcquireN]).
var ErrAboveLimit = permits.ErrAboveLimit

// sharedLimit is a limit that all users of a semaphore read from one znode.
type sharedLimit struct {
	session *session.Session
	path    string // on the server
	seed    int    // written if the znode is missing
}

// useLimit checks the limit of New and the path of the shared limit, "" if the limit is not shared.
func (s *InterProcessSemaphore) useLimit(c *recipes.Client, sharedPath string) error {
	if s.limit > math.MaxInt32 {
		return fmt.Errorf("limit: %d is more than %d", s.limit, math.MaxInt32)
	}
	if sharedPath == "" {
		if s.limit <= 0 {
			return fmt.Errorf("limit: %d is not positive", s.limit)
		}
		return nil
	}
	if s.limit < 0 {
		return fmt.Errorf("limit: %d is negative", s.limit)
	}
	session, path, err := recipe.AttachAt(c, sharedPath)
	if err != nil {
		return fmt.Errorf("shared limit: %w", err)
	}
	if own := s.base.Queue.Dir; path == own || own == "/" || strings.HasPrefix(path, own+"/") {
		return fmt.Errorf("shared limit: %s is the path of the semaphore, or below it", sharedPath)
	}
	if own := s.base.Queue.Dir; path == "/" || strings.HasPrefix(own, path+"/") {
		return fmt.Errorf("shared limit: %s is above the path of the semaphore, so its znode is a directory of locks and can't hold the limit", sharedPath)
	}
	s.shared = &sharedLimit{session, path, s.limit}
	return nil
}

// readLimit returns the limit for a request for permits. It creates a missing znode of a shared limit.
func (s *InterProcessSemaphore) readLimit(ctx context.Context) (permits.Limit, error) {
	if s.shared == nil {
		return permits.Limit{N: s.limit}, nil
	}
	for {
		limit, err := s.shared.read(ctx)
		if !errors.Is(err, zk.ErrNoNode) {
			return limit, err
		}
		if err := znodes.Create(ctx, s.shared.session, s.shared.path, encode(s.shared.seed)); err != nil {
			return permits.Limit{}, fmt.Errorf("create the shared limit: %w", err)
		}
	}
}

// peekLimit returns the limit without creating a znode.
func (s *InterProcessSemaphore) peekLimit(ctx context.Context) (int, error) {
	if s.shared == nil {
		return s.limit, nil
	}
	ctx, cancel := s.shared.session.WhileOpen(ctx)
	defer cancel()
	limit, err := s.shared.read(ctx)
	s.shared.session.ReleaseWatch(limit.Changed)
	if errors.Is(err, zk.ErrNoNode) {
		return s.limit, nil
	}
	return limit.N, err
}

func (l *sharedLimit) read(ctx context.Context) (permits.Limit, error) {
	node, changed, err := znodes.ReadAndWatch(ctx, l.session, l.path)
	if err != nil {
		return permits.Limit{}, fmt.Errorf("read the shared limit: %w", err)
	}
	n, ok := decode(node.Data)
	if !ok {
		l.session.ReleaseWatch(changed)
		return permits.Limit{}, fmt.Errorf("%w: %s has %q", ErrSharedLimit, l.path, node.Data)
	}
	return permits.Limit{N: n, Changed: changed}, nil
}

// encode returns a number in the format of Curator's SharedCount.
func encode(n int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) } //nolint:gosec // checked: 0 to MaxInt32

func decode(data []byte) (n int, ok bool) {
	if len(data) != 4 {
		return 0, false
	}
	number := binary.BigEndian.Uint32(data)
	return int(number), number <= math.MaxInt32
}

// SetSharedLimit writes the limit of all semaphores that have path as their [WithSharedLimit]. It creates the znode if
// it is missing. A limit of 0 is allowed. Then no contender gets a permit until the limit grows. A limit lower than the
// number of permits held takes no permit back. The error is ErrInvalidArgument if n is negative or more than
// 2147483647.
func SetSharedLimit(ctx context.Context, c *recipes.Client, path string, n int) error {
	failed := func(err error) error {
		return &recipes.OpError{Op: "semaphore: set shared limit", Path: path, Err: err}
	}
	if n < 0 || n > math.MaxInt32 {
		return failed(zkutil.Invalid(fmt.Errorf("limit: %d is not between 0 and %d", n, math.MaxInt32)))
	}
	session, full, err := recipe.AttachAt(c, path)
	if err != nil {
		return failed(zkutil.Invalid(err))
	}
	ctx, cancel := session.WhileOpen(ctx)
	defer cancel()
	if err := znodes.Write(ctx, session, full, encode(n)); err != nil {
		return failed(err)
	}
	return nil
}
