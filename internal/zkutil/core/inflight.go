package core

import "slices"

// framesInFlight are the requests without an answer, in the order of sending. Usually the first request is answered, so
// the slot stays free until all requests are answered, or space is needed. A thousand answers to a thousand requests do
// not move any request a thousand times.
type framesInFlight struct {
	frames   []Frame
	answered int // of the first frames, which are zero
}

// all returns the requests. The caller may change them until the next call of another method.
func (q *framesInFlight) all() []Frame { return q.frames[q.answered:] }

func (q *framesInFlight) add(f Frame) {
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
