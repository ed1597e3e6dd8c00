package load

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/bench/peer"
)

// handoverLimit is how long one handover may take.
const handoverLimit = time.Minute

// latch hands an election over and over between two sessions. The former leader joins again, and has time to start
// waiting before the next handover.
func (w *worker) latch(ctx context.Context, args *arguments) error {
	file, path, times, rest := args.text(), args.text(), args.number(), time.Duration(args.number())
	if args.err != nil {
		return args.err
	}
	var elections []peer.Election
	sessions, _ := w.opened()
	for _, s := range sessions {
		if e, ok := s.(peer.Election); ok {
			elections = append(elections, e)
		}
	}
	if len(elections) < 2 {
		return fmt.Errorf("load: %s has no two sessions for an election", w.peer.Name)
	}
	leader, err := elections[0].Candidate(ctx, path)
	if err != nil {
		return err
	}
	if err := awaitElected(leader); err != nil {
		return err
	}
	var spans []Span
	for i := range times {
		next, err := elections[(i+1)%len(elections)].Candidate(ctx, path)
		if err != nil {
			return err
		}
		pause(rest)
		s := Span{Called: w.clock.now(), Turn: int64(i)}
		s.Releasing = s.Called
		if err := leader.Resign(); err != nil {
			return err
		}
		s.Released = w.clock.now()
		if err := awaitElected(next); err != nil {
			return err
		}
		s.Acquired = w.clock.of(next.ElectedAt())
		spans = append(spans, s)
		leader = next
	}
	return errors.Join(leader.Resign(), writeSpans(file, spans))
}

func awaitElected(c peer.Candidate) error {
	late := time.NewTimer(handoverLimit)
	defer late.Stop()
	select {
	case <-c.Elected():
		return nil
	case <-late.C:
		return fmt.Errorf("load: nobody was elected within %v", handoverLimit)
	}
}
