package session

// IsFirst reports whether the znode that is watched is, or was, a hold of this session that was the first of its
// queue. Once it was, nothing can be ahead of it.
func (s *Session) IsFirst(w *Watch) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return w.isFirst
}

// OnFirst returns a channel that is closed when IsFirst is true.
func (s *Session) OnFirst(w *Watch) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.onFirst == nil {
		w.onFirst = make(chan struct{})
		if w.isFirst {
			close(w.onFirst)
		}
	}
	return w.onFirst
}

// noteFirstLocked is called when the znode has become a hold that is the first of its queue.
func (w *Watch) noteFirstLocked() {
	if !w.isFirst && w.onFirst != nil {
		close(w.onFirst)
	}
	w.isFirst = true
}
