package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/curator"
	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
)

// startCurator starts a Java process with Curator's lock. Goroutines here command its contenders, so their records
// are later than the events.
func startCurator(s Setup, lines []*faultproxy.Proxy) (*client, error) {
	db, err := openRows(s.DSN)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "chaos-curator-")
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	var servers []string
	for _, line := range lines {
		servers = append(servers, line.Addr())
	}
	ctx, cancel := context.WithCancel(context.Background()) // of the contenders; kill ends it
	agent, err := curator.Open(ctx, dir, servers, s.Timeout)
	if err != nil {
		cancel()
		return nil, errors.Join(err, db.Close(), os.RemoveAll(dir))
	}
	c := &client{proc: s.Proc, lines: lines, gone: make(chan struct{})}
	w := &worker{Setup: s, recorder: &recorder{proc: s.Proc, tell: c.take}, db: db, finish: make(chan struct{}), leave: make(chan struct{})}
	c.pause = func() { _ = agent.Pause() }
	c.proceed = func() { _ = agent.Resume() }
	c.finish = sync.OnceFunc(func() { close(w.finish) })
	c.leave = sync.OnceFunc(func() { close(w.leave) })
	_, err = agent.Go("connect", "client").Result()
	var contenders sync.WaitGroup
	for i := range 2 {
		lock := fmt.Sprintf("lock%d", i)
		if err == nil {
			_, err = agent.Go("mutex", lock, "client", fencedPath).Result()
		}
		if err != nil {
			break
		}
		contender := w.contender(i, fencedPath)
		contenders.Go(func() {
			contender.bare(ctx, func() (context.Context, func() error, error) {
				_, err := agent.GoFor(time.Hour, "acquire", lock).Result()
				return context.Background(), func() error { _, err := agent.Go("release", lock).Result(); return err }, err
			})
		})
	}
	c.kill = sync.OnceFunc(func() {
		cancel()
		_ = agent.Close() // waits for its end
		<-c.gone
		_ = os.RemoveAll(dir)
	})
	go func() { // ends with the contenders; kill waits for it
		defer close(c.gone)
		contenders.Wait()
		w.rest(ctx)
		c.err = db.Close()
	}()
	if err != nil {
		c.kill()
		return nil, err
	}
	return c, nil
}
