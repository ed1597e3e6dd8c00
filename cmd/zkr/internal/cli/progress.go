package cli

import (
	"context"
	"fmt"
	"os"
	"slices"
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

// showWhile shows a line on a terminal, renewed every second, until the caller calls stop. describe returns the line
// without the elapsed time; "" shows nothing. Unless stderr is a terminal, nothing is shown.
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

// showConnecting shows that zkr waits for an answer of the servers.
func (j *job) showConnecting(ctx context.Context) (stop func()) {
	return j.showWhile(ctx, func(_ context.Context, passed time.Duration) string {
		return fmt.Sprintf("connecting to %s (for %v)", j.servers, passed)
	})
}

// showWaiting shows the holders of the lock.
func (j *job) showWaiting(ctx context.Context, client *recipes.Client) (stop func()) {
	own := ""
	return j.showWhile(ctx, func(ctx context.Context, passed time.Duration) string {
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		queue, err := inspect.Peek(ctx, client, j.path, 1)
		if err != nil || len(queue.Contenders) == 0 {
			return fmt.Sprintf("waiting for %s (for %v)", j.path, passed)
		}
		isOwn := func(c inspect.Contender) bool { return c.Path == own }
		if !slices.ContainsFunc(queue.Contenders, isOwn) { // at first, and after the end of a session
			own = findOwn(ctx, client, queue)
		}
		position := ""
		if i := slices.IndexFunc(queue.Contenders, isOwn); i >= 0 && !queue.Contenders[i].Holds {
			position = fmt.Sprintf("position %d, ", i+1)
		}
		first := queue.Contenders[0]
		return fmt.Sprintf("waiting behind %s (%sfor %v)", shownID(first), position, passed)
	})
}

// findOwn returns the znode of this process's contender, or "" if unknown. It is among the last znodes.
func findOwn(ctx context.Context, client *recipes.Client, queue inspect.Queue) string {
	for _, c := range slices.Backward(queue.Contenders) {
		stat, err := await.Call(ctx, func() (*zk.Stat, error) {
			_, stat, err := client.Conn().Exists(c.Path)
			return stat, err
		})
		if err == nil && stat.EphemeralOwner == client.Conn().SessionID() {
			return c.Path
		}
	}
	return ""
}
