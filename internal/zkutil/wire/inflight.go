package wire

import "slices"

// framesInFlight are the requests without an answer, in the order in which they were sent. Mostly the first
// one is answered, so its place is left free until all are answered, or room is needed: a thousand answers to
// a thousand requests move no request a thousand times.
type framesInFlight struct {
	frames   []sentFrame
	answered int // of the first frames, which are zero
}

// all returns the requests. They may be changed until the next call of another method.
func (q *framesInFlight) all() []sentFrame { return q.frames[q.answered:] }

func (q *framesInFlight) add(f sentFrame) {
	if len(q.frames) == cap(q.frames) && q.answered > len(q.frames)/2 {
		q.frames, q.answered = slices.Delete(q.frames, 0, q.answered), 0
	}
	q.frames = append(q.frames, f)
}

// removeFirst removes the first n requests.
func (q *framesInFlight) removeFirst(n int) {
	clear(q.all()[:n])
	if q.answered += n; q.answered == len(q.frames) {
		q.frames, q.answered = q.frames[:0], 0
	}
}

// remove removes one request.
func (q *framesInFlight) remove(i int) {
	q.frames = slices.Delete(q.frames, q.answered+i, q.answered+i+1)
}
