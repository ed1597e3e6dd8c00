package inspect

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/internal/recipe"
)

// The kinds of queues are a closed list. The words are those of Recipe in the events of recipes.Trace, as far as znodes
// show the recipe.
const (
	KindMutex     = "mutex"     // also "selector", "once", zk.Lock, and kazoo's Lock, whose znodes are the same
	KindLatch     = "latch"     // "latch"
	KindSemaphore = "semaphore" // also "semaphore-mutex"
	KindRWLock    = "rwlock"    // "read-lock" and "write-lock", which share a queue
	// KindUnknown is the kind of a path without contenders or with contenders of several kinds. In the
	// latter case no contender is reported as a holder.
	KindUnknown = "unknown"
)

// Queue is one lock or election with its contenders.
type Queue struct {
	// Path is the path to pass to Read and to a recipe: below the client's namespace. For a semaphore,
	// Path is the path passed to its New, not the path of a part.
	Path string
	// Kind is one of the constants above.
	Kind string
	// Contenders are in the order of the queue. In a semaphore, the permits are first, followed by the waiters.
	Contenders []Contender
}

// Contender is a holder or a waiter.
type Contender struct {
	// Position is the position in the queue, from 1.
	Position int
	// ID is the content of the znode, which is the ID of the recipe's WithID, or the client's ID. It is empty if
	// unreadable or overwritten by a revocation.
	ID string
	// Path is the path of the znode on the server, namespace included.
	Path string
	// Token is the czxid of the znode, the contender's fencing token as a holder. For a waiter of a semaphore, Token is
	// not the token of the permit, whose znode is created later. A read lock acquired under the write lock has the
	// writer's token instead.
	Token int64
	// Since is the creation time of the znode, by the servers' clock. It is the start of the wait, not of the hold.
	Since time.Time
	// Holds is true for a contender that need not wait, such as the first contender of a mutex, a latch's leader, the
	// first writer or all readers ahead of it, and the owners of permits.
	Holds bool
	// Revoked is true if a peer asked for the lease.
	Revoked bool
	// NotEphemeral is true if the znode is not ephemeral, and so stays until a client deletes it, as
	// recipes.Participant explains. If such a contender is first, it holds, and no contender behind it can.
	NotEphemeral bool
}

// Read returns the queue at path, an absolute path below the client's namespace. For a missing path
// Read returns zk.ErrNoNode, and for an unused path a queue without contenders of KindUnknown. It
// repeats requests after lost connections until ctx ends.
func Read(ctx context.Context, c *recipes.Client, path string) (Queue, error) {
	return read(ctx, c, "read", path, -1)
}

// Peek is Read, except that it reads the znodes of at most the first n contenders. The data of a znode may be a megabyte, and the names
// of all znodes suffice for the kind of a queue, its order and its holders. Of the other contenders, only Position, Path and Holds are
// set. One that leaves during the call may be among them, and so may a semaphore's contender whose permit is not yet granted, as a holder.
func Peek(ctx context.Context, c *recipes.Client, path string, n int) (Queue, error) {
	return read(ctx, c, "peek", path, max(n, 0))
}

func read(ctx context.Context, c *recipes.Client, op, path string, limit int) (Queue, error) {
	r, err := newReader(c, path)
	if err != nil {
		return Queue{}, opError(op, path, err)
	}
	r.limit = limit
	ctx, cancel := r.session.WhileOpen(ctx)
	defer cancel()
	found, err := r.readDir(ctx, path)
	if err != nil {
		return Queue{}, opError(op, path, err)
	}
	return found.queue, nil
}

// Walk returns each queue with contenders at root and below, and any errors, each with a Queue of which
// only the Path is set. The order is by depth, then by path. After an error that affects only one path,
// such as zk.ErrNoAuth, Walk continues with the others. A missing root is zk.ErrNoNode; a path that
// disappears during the walk is no error. Memory grows with the number of paths at one depth.
func Walk(ctx context.Context, c *recipes.Client, root string) iter.Seq2[Queue, error] {
	return func(yield func(Queue, error) bool) {
		r, err := newReader(c, root)
		if err != nil {
			yield(Queue{Path: root}, opError("walk", root, err))
			return
		}
		ctx, cancel := r.session.WhileOpen(ctx)
		defer cancel()
		level := []string{root}
		for depth := 0; len(level) > 0; depth++ {
			var next []string
			for batch := range slices.Chunk(level, maxRequests) {
				below, goOn := r.yieldBatch(ctx, batch, depth == 0, yield)
				if !goOn {
					return
				}
				next = append(next, below...)
			}
			level = next
		}
	}
}

// yieldBatch reads directories in parallel and yields their queues in order. It returns the directories
// below, and false when the walk is over.
func (r *reader) yieldBatch(ctx context.Context, batch []string, isRoot bool, yield func(Queue, error) bool) (below []string, goOn bool) {
	for i, found := range r.readDirs(ctx, batch) {
		switch {
		case errors.Is(found.err, zk.ErrNoNode) && !isRoot:
		case found.err != nil:
			isOver := !zkutil.IsRefused(found.err)
			if !yield(Queue{Path: batch[i]}, opError("walk", batch[i], found.err)) || isOver {
				return nil, false
			}
		case len(found.queue.Contenders) > 0 && !yield(found.queue, nil):
			return nil, false
		}
		below = append(below, found.below...)
	}
	return below, true
}

func newReader(c *recipes.Client, path string) (*reader, error) {
	session, dir, err := recipe.Attach(c, path)
	if err != nil {
		return nil, err
	}
	namespace := dir[:max(0, len(dir)-len(path))]
	if path == "/" && dir != "/" {
		namespace = dir
	}
	return &reader{session: session, namespace: namespace, slots: make(chan struct{}, maxRequests), limit: -1}, nil
}

func opError(op, path string, err error) error {
	return &recipes.OpError{Op: "inspect: " + op, Path: path, Err: err}
}
