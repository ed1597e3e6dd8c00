package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/bench/peer"
)

// crowd is the contenders of one process.
type crowd struct {
	contenders []peer.Contender
	clock      clock
	closed     <-chan struct{} // closed with the sessions; nil: they stay
}

// closedFor bounds how long contenders may take to return after their sessions are closed. zk.Lock can wait for ever,
// because a watch set after the end of the connection gets no event.
const closedFor = 5 * time.Second

var errStuck = errors.New("load: contenders wait on though their sessions are closed")

// newCrowd makes the contenders first, first+stride, … of all; the other processes have the others. With baskets, which are by turn,
// each contender locks the basket of its turn, instead of one of the locks.
func newCrowd(
	ctx context.Context, sessions []peer.Session, c clock, path string, locks int, baskets [][]string, first, stride, all int,
) (*crowd, error) {
	if len(sessions) == 0 || locks < 1 || stride < 1 {
		return nil, errors.New("load: no sessions, or no locks")
	}
	w := &crowd{clock: c}
	for i := first; i < all; i += stride {
		session := sessions[i/stride%len(sessions)]
		if baskets != nil {
			w.contenders = append(w.contenders, &basketContender{session: session, baskets: baskets})
			continue
		}
		contender, err := session.Contender(ctx, lockPath(path, locks, i%locks))
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
		w.contenders = append(w.contenders, contender)
	}
	return w, nil
}

func (w *crowd) close() error { return closeContenders(w.contenders) }

func closeContenders(contenders []peer.Contender) error {
	errs := make([]error, len(contenders))
	for i, contender := range contenders {
		if closer, ok := contender.(io.Closer); ok {
			errs[i] = closer.Close()
		}
	}
	return errors.Join(errs...)
}

// lockPath is the path of one of several locks.
func lockPath(path string, locks, lock int) string {
	if locks == 1 {
		return path
	}
	return path + "-" + strconv.Itoa(lock)
}

// loop is what a crowd does.
type loop struct {
	begin int64 // when all processes begin
	pairs int   // acquisitions of this process; 0: one per contender
	hold  time.Duration
}

// run makes the contenders lock and unlock until the pairs are done. It abandons stuck contenders.
func (w *crowd) run(ctx context.Context, l loop) ([]Span, error) {
	var turns atomic.Int64
	takeTurn := func(done int) (turn int, ok bool) {
		if l.pairs == 0 {
			return 0, done == 0
		}
		turn = int(turns.Add(1)) - 1
		return turn, turn < l.pairs
	}
	shares, errs := make([][]Span, len(w.contenders)), make([]error, len(w.contenders))
	var work sync.WaitGroup
	for i, contender := range w.contenders {
		work.Go(func() { // ends when no turn is left; joined below, unless it is stuck
			shares[i], errs[i] = contend(ctx, contender, w.clock, l, takeTurn)
		})
	}
	done := make(chan struct{})
	go func() { // ends with the contenders
		work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-w.closed:
		select {
		case <-done:
		case <-time.After(closedFor):
			return nil, errStuck
		}
	}
	return slices.Concat(shares...), firstOf(errs)
}

// firstOf reduces many errors to one: thousands may fail at once, and the answer to a command is one line.
func firstOf(errs []error) error {
	var first error
	count := 0
	for _, err := range errs {
		if err == nil {
			continue
		}
		if count++; first == nil {
			first = err
		}
	}
	if count > 1 {
		return fmt.Errorf("%d contenders failed, one of them: %w", count, first)
	}
	return first
}

func contend(ctx context.Context, contender peer.Contender, c clock, l loop, takeTurn func(done int) (int, bool)) ([]Span, error) {
	pause(c.until(l.begin))
	var spans []Span
	for turn, ok := takeTurn(0); ok; turn, ok = takeTurn(len(spans)) {
		if b, isBasket := contender.(*basketContender); isBasket {
			if err := b.take(ctx, turn); err != nil {
				return spans, fmt.Errorf("load: basket: %w", err)
			}
		}
		s := Span{Called: c.now(), Turn: int64(turn)}
		if err := contender.Lock(ctx); err != nil {
			return spans, fmt.Errorf("load: lock: %w", err)
		}
		s.Acquired = c.now()
		if l.hold > 0 {
			pause(l.hold)
		}
		s.Releasing = c.now()
		if err := contender.Unlock(); err != nil {
			return spans, fmt.Errorf("load: unlock: %w", err)
		}
		s.Released = c.now()
		spans = append(spans, s)
	}
	return spans, nil
}

// pause is part of the load: the time in a critical section, or between two steps.
func pause(d time.Duration) {
	<-time.After(d)
}
