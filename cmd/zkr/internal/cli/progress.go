package cli

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/await"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/screen"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
)

// progressPeriod is the time between two versions of the line about a wait, and before the first one.
const progressPeriod = time.Second

// eraseLine is what a terminal needs to write a line anew.
const eraseLine = "\r\x1b[K"

// showWhile shows a line on a terminal, renewed every second, until stop is called. Describe returns the line without
// the time that has passed; "" shows nothing. Where stderr is no terminal nothing is shown.
func (j *job) showWhile(ctx context.Context, describe func(ctx context.Context, passed time.Duration) string) (stop func()) {
	if j.isQuiet || !screen.IsTerminal(os.Stderr) {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var shower sync.WaitGroup
	shower.Go(func() { // ends with the context; joined in stop
		began, isShown := time.Now(), false
		defer func() {
			if isShown {
				stderr.queue(eraseLine)
			}
		}()
		for {
			select {
			case <-time.After(progressPeriod):
			case <-ctx.Done():
				return
			}
			line := describe(ctx, time.Since(began).Truncate(time.Second))
			if line == "" || ctx.Err() != nil {
				continue
			}
			isShown = true
			width, _ := screen.Size(os.Stderr)
			stderr.queue(eraseLine + screen.Cut("zkr: "+line, width-1))
		}
	})
	return func() {
		cancel()
		shower.Wait()
		stderr.flush() // the command may write to the same terminal next
	}
}

// showConnecting shows that the servers have not answered yet.
func (j *job) showConnecting(ctx context.Context) (stop func()) {
	return j.showWhile(ctx, func(_ context.Context, passed time.Duration) string {
		return fmt.Sprintf("connecting to %s (for %v)", j.servers, passed)
	})
}

// showWaiting shows who holds what this process waits for.
func (j *job) showWaiting(ctx context.Context, client *recipes.Client) (stop func()) {
	return j.showWhile(ctx, func(ctx context.Context, passed time.Duration) string {
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		queue, err := inspect.Read(ctx, client, j.path)
		if err != nil || len(queue.Contenders) == 0 {
			return fmt.Sprintf("waiting for %s (for %v)", j.path, passed)
		}
		position := ""
		if own := ownPosition(ctx, client, queue, j.id); own > 0 {
			position = fmt.Sprintf("position %d, ", own)
		}
		first := queue.Contenders[0]
		behind := strconv.Quote(first.ID)
		if first.Revoked {
			behind = "a contender that was asked to release"
		}
		return fmt.Sprintf("waiting behind %s (%sfor %v)", behind, position, passed)
	})
}

// ownPosition is the position of this process's contender, 0 if it can't be told.
func ownPosition(ctx context.Context, client *recipes.Client, queue inspect.Queue, id string) int {
	for _, c := range queue.Contenders {
		if c.ID != id || c.Holds {
			continue
		}
		stat, err := await.Call(ctx, func() (*zk.Stat, error) {
			_, stat, err := client.Conn().Exists(c.Path)
			return stat, err
		})
		if err == nil && stat.EphemeralOwner == client.Conn().SessionID() {
			return c.Position
		}
	}
	return 0
}
