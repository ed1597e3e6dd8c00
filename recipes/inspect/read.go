package inspect

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// maxRequests bounds the requests that one Read or Walk has in flight.
const maxRequests = 16

// The parts of a semaphore, which are directories below its path.
const (
	partLocks  = "locks"
	partLeases = "leases"
)

// reader is the state of one call.
type reader struct {
	session   *session.Session
	namespace string        // prefix of users' paths on the server; "" if the client has no namespace
	slots     chan struct{} // one for each request in flight
	limit     int           // of the znodes to read in a queue, the first ones; -1: all
}

// dir is the content of a directory.
type dir struct {
	queue Queue
	below []string // paths, below the namespace, of the children that are not contenders
	err   error
}

// fullPath returns the path on the server.
func (r *reader) fullPath(path string) string {
	if r.namespace == "" {
		return path
	}
	return r.namespace + strings.TrimSuffix(path, "/")
}

// request runs one request, repeated under the retry policy, as soon as a slot is free.
func request[T any](ctx context.Context, r *reader, run func() (T, error)) (T, error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
		return session.Repeat(ctx, r.session, run)
	case <-ctx.Done():
		var none T
		return none, zkutil.EndOf(ctx)
	}
}

// list returns the children of a path on the server.
func (r *reader) list(ctx context.Context, path string) ([]string, error) {
	return request(ctx, r, func() ([]string, error) {
		return session.ListChildren(ctx, r.session, path, "inspect", slices.Clone[[]string])
	})
}

// readDirs reads directories in parallel.
func (r *reader) readDirs(ctx context.Context, paths []string) []dir {
	found := make([]dir, len(paths))
	var readers sync.WaitGroup
	for i, path := range paths {
		readers.Go(func() { // ends with its reads, which end with ctx; joined below
			found[i], found[i].err = r.readDir(ctx, path)
		})
	}
	readers.Wait()
	return found
}

// readDir reads the queue at a path below the namespace, with its contenders.
func (r *reader) readDir(ctx context.Context, path string) (dir, error) {
	full := r.fullPath(path)
	children, err := r.list(ctx, full)
	if err != nil {
		return dir{}, err
	}
	contenders, others := parseDir(children)
	if full == "/" {
		others = slices.DeleteFunc(others, func(name string) bool { return name == "zookeeper" }) // the server's own
	}
	if len(contenders) == 0 && slices.Contains(others, partLeases) {
		queue, isSemaphore, err := r.readSemaphore(ctx, path, slices.Contains(others, partLocks))
		if err != nil {
			return dir{below: joinAll(path, others)}, err
		}
		if isSemaphore {
			isPart := func(name string) bool { return name == partLocks || name == partLeases }
			return dir{queue: queue, below: joinAll(path, slices.DeleteFunc(others, isPart))}, nil
		}
	}
	nodes, err := r.readNodes(ctx, full, contenders, r.limit)
	if err != nil {
		return dir{below: joinAll(path, others)}, err
	}
	for _, n := range nodes {
		if n.stat.EphemeralOwner == 0 && n.stat.NumChildren > 0 { // a directory with the name of a contender
			others = append(others, n.name)
		}
	}
	kind := kindOf(nodes)
	for i := range countHolders(kind, nodes) {
		nodes[i].holds = true
	}
	return dir{queue: newQueue(path, kind, nodes), below: joinAll(path, others)}, nil
}

func joinAll(path string, names []string) []string {
	paths := make([]string, len(names))
	for i, name := range names {
		paths[i] = zkutil.Join(path, name)
	}
	return paths
}

// node is a contender with its znode; an empty path means that the contender no longer exists.
type node struct {
	entry
	path  string
	data  []byte
	stat  zk.Stat
	holds bool
}

// readNodes reads the znodes of the first contenders in a directory on the server, at most limit unless it is -1. It returns the
// contenders whose znodes still exist, in order, including the unread ones.
func (r *reader) readNodes(ctx context.Context, full string, contenders []entry, limit int) ([]node, error) {
	nodes, failures := make([]node, len(contenders)), make([]error, len(contenders))
	n := len(contenders)
	if limit >= 0 {
		n = min(n, limit)
	}
	for i, e := range contenders[n:] {
		nodes[n+i] = node{entry: e, path: zkutil.Join(full, e.name)}
	}
	var readers sync.WaitGroup
	for worker := range min(maxRequests, n) {
		readers.Go(func() { // ends with its reads, which end with ctx; joined below
			for i := worker; i < n; i += maxRequests {
				nodes[i], failures[i] = r.readNode(ctx, full, contenders[i])
			}
		})
	}
	readers.Wait()
	for _, err := range failures {
		if err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(nodes, func(n node) bool { return n.path == "" }), nil
}

func (r *reader) readNode(ctx context.Context, full string, e entry) (node, error) {
	path := zkutil.Join(full, e.name)
	n, err := request(ctx, r, func() (session.Node, error) { return r.session.ReadPeer(ctx, path) })
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return node{}, nil
	case err != nil:
		return node{}, err
	default:
		return node{entry: e, path: path, data: n.Data, stat: n.Stat}, nil
	}
}

// newQueue returns the public form of a queue.
func newQueue(path, kind string, nodes []node) Queue {
	q := Queue{Path: path, Kind: kind, Contenders: make([]Contender, 0, len(nodes))}
	for i, n := range nodes {
		c := Contender{Position: i + 1, ID: string(n.data), Path: n.path, Token: n.stat.Czxid, Holds: n.holds}
		if n.stat.Czxid != 0 {
			c.Since, c.NotEphemeral = time.UnixMilli(n.stat.Ctime), n.stat.EphemeralOwner == 0
		}
		if y, ok := queue.ParseYield([]byte(c.ID)); ok {
			c.ID = string(y.ID)
		}
		if c.ID == session.Revocation {
			c.ID, c.Revoked = "", true
		}
		q.Contenders = append(q.Contenders, c)
	}
	return q
}
