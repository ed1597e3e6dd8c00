package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// contendZKLock contends for the first path with go-zookeeper's own lock. It has no
// context, no token and no word of a loss: whoever has Lock's nil believes that he holds
// the lock until Unlock.
func (w *worker) contendZKLock(ctx context.Context) error {
	conn, _, err := zk.Connect(w.Servers, w.Timeout, zk.WithLogInfo(false))
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for i := range 2 {
		c := w.contender(i, fencedPath)
		all.Go(func() { c.zkLock(ctx, conn) })
	}
	done := make(chan struct{})
	go func() { // ends with the contenders, or with the process: a lock may hang for good
		defer close(done)
		all.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("zk.Lock did not come back: %w", ctx.Err())
	}
	conn.Close()
	return nil
}

func (c *contender) zkLock(ctx context.Context, conn *zk.Conn) {
	c.bare(ctx, func() (unlock func() error, err error) {
		lock := zk.NewLock(conn, c.path, zk.WorldACL(zk.PermAll))
		return lock.Unlock, lock.Lock()
	})
}

// bare contends with a lock that gives neither a context nor a token, and changes the row
// as its holders do.
func (c *contender) bare(ctx context.Context, lock func() (unlock func() error, err error)) {
	for last := false; !last && ctx.Err() == nil; linger(c.upTo(30*time.Millisecond), ctx.Done()) {
		last = c.finishing()
		c.tries++
		c.note(Event{What: Called, Try: c.tries})
		unlock, err := lock()
		if err != nil {
			c.note(Event{What: Failed, Try: c.tries, Text: err.Error()})
			continue
		}
		c.note(Event{What: Granted, Try: c.tries})
		if value, err := c.row.read(ctx); err == nil {
			linger(c.upTo(20*time.Millisecond), ctx.Done())
			if c.rand.IntN(10) == 0 { // as fenced does
				linger(c.upTo(c.Timeout/4), ctx.Done())
			}
			if c.row.write(ctx, 0, value+1) == nil {
				c.note(Event{What: Wrote, Try: c.tries, Value: value + 1})
			}
		}
		c.note(Event{What: Ended, Try: c.tries, Text: "released"})
		text := ""
		if err := unlock(); err != nil {
			text = err.Error()
		}
		c.note(Event{What: Released, Try: c.tries, Text: text})
	}
}
