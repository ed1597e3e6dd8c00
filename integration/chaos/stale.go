package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Parameters of the search for a holder at work.
const (
	atWork    = 250 * time.Millisecond
	staleSeen = 2 * time.Minute
)

// staleHolder forces a write by a former holder, so that its refusal by the row and the servers is not left to
// chance. It stops a process in the middle of its work until its session is over and others held the lock.
func (n *Nemesis) staleHolder(ctx context.Context, clients []*client) error {
	ctx, cancel := context.WithTimeout(ctx, staleSeen)
	defer cancel()
	for !refused(clients) {
		c, err := n.working(ctx, clients)
		if err != nil {
			return err
		}
		end := n.note(pauseClient, c.proc, "")
		c.pause()
		pause(ctx, 2*n.timeout)
		c.proceed()
		end(true)
		pause(ctx, 2*n.timeout) // some are slow to see it
	}
	return nil
}

// refused reports whether the row and the servers refused a stale holder.
func refused(clients []*client) bool {
	row := slices.ContainsFunc(clients, func(c *client) bool { return c.refused.Load() > 0 })
	znode := slices.ContainsFunc(clients, func(c *client) bool { return c.unmarked.Load() > 0 })
	return row && znode
}

// working waits for a client that is at work behind the fenced lock.
func (n *Nemesis) working(ctx context.Context, clients []*client) (*client, error) {
	first, since := "", time.Now()
	for ; ctx.Err() == nil; pause(ctx, atWork/10) {
		if now := n.first(fencedPath); now != first {
			first, since = now, time.Now()
		}
		if first == "" || time.Since(since) < atWork {
			continue
		}
		id, _, err := n.admin.Get(first)
		if err != nil {
			continue // it is gone, or the servers are
		}
		proc := 0
		if _, err := fmt.Sscanf(string(id), "p%d.", &proc); err != nil {
			return nil, fmt.Errorf("chaos: znode of %q: %w", id, err)
		}
		return clients[proc-1], nil
	}
	return nil, errors.New("chaos: nobody was at work for long enough to be stopped")
}

// first returns the first znode of a queue, if any.
func (n *Nemesis) first(dir string) string {
	names := n.queue(dir)
	if len(names) == 0 {
		return ""
	}
	return dir + "/" + names[0]
}

// queue lists the znodes of a queue in their order.
func (n *Nemesis) queue(dir string) []string {
	names, _, err := n.admin.Children(dir)
	if err != nil {
		return nil
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(sequence(a), sequence(b)) })
	return names
}

// sequence is the number at the end of a znode's name.
func sequence(name string) string {
	const digits = 10
	return name[max(0, len(name)-digits):]
}
