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

// The kinds of queues.
const (
	KindMutex     = "mutex" // InterProcessMutex, LeaderSelector, zk.Lock, kazoo's Lock
	KindLatch     = "latch"
	KindSemaphore = "semaphore"
	KindRWLock    = "rwlock"
	// KindUnknown is the kind of a path without contenders, and of one with contenders of several
	// kinds: of these nobody is said to hold.
	KindUnknown = "unknown"
)

// Queue is one lock or election with its contenders.
type Queue struct {
	// Path is the path as it is given to Read and to a recipe: below the client's namespace. A
	// semaphore has the path that it was made with, not those of its parts.
	Path string
	// Kind is one of the constants above.
	Kind string
	// Contenders are in the order of the queue. Of a semaphore, the permits come first, and then
	// those who wait.
	Contenders []Contender
}

// Contender is one that holds or waits.
type Contender struct {
	// Position is the position in the queue, from 1.
	Position int
	// ID is the content of its znode: the id of its recipe's WithID, or that of the client's. It is
	// empty if the znode may not be read, and after a revocation, which replaces it.
	ID string
	// Path is the path of its znode on the server, namespace included.
	Path string
	// Token is the czxid of its znode: the fencing token that it has as holder. Of one that waits for
	// a semaphore it is not the token of the permit, whose znode is made later.
	Token int64
	// Since is the time at which its znode was created, by the servers' clock: the start of its wait,
	// not of its hold.
	Since time.Time
	// Holds is true for a contender that waits for nobody: the first of a mutex, a latch's leader, the
	// first writer or all readers ahead of it, and those who have a permit.
	Holds bool
	// Revoked is true if a peer has asked for the lease.
	Revoked bool
}

// Read returns the queue at path, an absolute path below the client's namespace. It returns
// zk.ErrNoNode for a missing path, and a queue without contenders of KindUnknown for an unused one.
// It repeats requests after lost connections until ctx ends.
func Read(ctx context.Context, c *recipes.Client, path string) (Queue, error) {
	r, err := newReader(c, path)
	if err != nil {
		return Queue{}, opError("read", path, err)
	}
	ctx, cancel := r.session.WhileOpen(ctx)
	defer cancel()
	found, err := r.readDir(ctx, path)
	if err != nil {
		return Queue{}, opError("read", path, err)
	}
	return found.queue, nil
}

// Walk returns each queue at root and below that has contenders, and the errors that it meets, each
// with a Queue of which only the Path is set. The order is: by depth, then by path. After an error
// that concerns one path, such as zk.ErrNoAuth, Walk continues with the others. A missing root is
// zk.ErrNoNode; a path that disappears meanwhile is no error. Memory grows with the number of paths
// at one depth.
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

// yieldBatch reads directories side by side and yields their queues in order. It returns the
// directories below them, and false when the walk is over.
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
	return &reader{session: session, namespace: namespace, slots: make(chan struct{}, maxRequests)}, nil
}

func opError(op, path string, err error) error {
	return &recipes.OpError{Op: "inspect: " + op, Path: path, Err: err}
}
