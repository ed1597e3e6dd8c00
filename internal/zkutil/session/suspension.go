package session

import "time"

// suspension tells for how long the machine has been suspended in all. The exact answer takes system calls, and the
// clock of trust is read some thirty times for each lock. So it is asked for once in a while, and as soon as Go's two
// clocks disagree: while the machine is suspended the wall clock goes on, and the monotonic clock stands still. Only
// one shorter than suspendError/2, or one after which somebody sets the wall clock back by just as much, is noticed
// up to exactFor late.
//
// It is for one clock, whose lock guards it.
type suspension struct {
	exact  func() time.Duration
	clocks func() (wall, monotonic time.Duration) // since some moment

	total  time.Duration // what exact said last
	lead   time.Duration // of the wall clock at that time
	readAt time.Duration // when that was, by the monotonic clock; 0: never
}

// exactFor is for how long an answer of exact does.
const exactFor = 10 * time.Millisecond

func newSuspension() *suspension {
	began := time.Now().Add(-time.Second) // so that no reading is zero
	return &suspension{exact: suspendedTime, clocks: func() (wall, monotonic time.Duration) {
		now := time.Now()
		return now.Round(0).Sub(began.Round(0)), now.Sub(began)
	}}
}

// length is for how long the machine has been suspended in all.
func (s *suspension) length() time.Duration {
	wall, monotonic := s.clocks() // before exact: a suspension between the two shows the next time
	lead := wall - monotonic
	if s.readAt == 0 || monotonic-s.readAt >= exactFor || (lead-s.lead).Abs() > suspendError/2 {
		s.total, s.lead, s.readAt = s.exact(), lead, monotonic
	}
	return s.total
}
