package judge

import (
	"errors"
	"fmt"
	"sync"
)

// Section is the resource that a lock guards: it detects concurrent holders and tokens that do not grow. The zero value is
// ready for use, by any number of goroutines.
type Section struct {
	mu      sync.Mutex // protects the fields below
	inside  int
	entered int
	tokens  Tokens[int]
	faults  []error
}

// Enter records that the holder with this token enters.
func (s *Section) Enter(token int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inside++
	s.entered++
	if s.inside > 1 {
		s.faults = append(s.faults, fmt.Errorf("%d holders at once, one with token %d", s.inside, token))
	}
	if before, grows := s.tokens.Grant(token, s.entered); !grows {
		s.faults = append(s.faults, fmt.Errorf("holder %d has token %d, which is not higher than that of holder %d", s.entered, token, before))
	}
}

// Leave records that a holder leaves.
func (s *Section) Leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inside--
}

// Entered returns the number of calls of Enter.
func (s *Section) Entered() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entered
}

// Err returns the violations, nil if there are none.
func (s *Section) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return errors.Join(s.faults...)
}
