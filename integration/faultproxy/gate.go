package faultproxy

import "sync"

// gate is a point on the line that can be closed; frames wait until it is open again.
type gate struct {
	mu   sync.Mutex
	shut chan struct{} // guarded by mu; nil while open, closed on opening
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut == nil {
		g.shut = make(chan struct{})
	}
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

// pass waits for the gate; it returns false once done is closed. What a cut line still holds is lost, even if the
// gate is open.
func (g *gate) pass(done <-chan struct{}) bool {
	for {
		select {
		case <-done:
			return false
		default:
		}
		g.mu.Lock()
		shut := g.shut
		g.mu.Unlock()
		if shut == nil {
			return true
		}
		select {
		case <-shut:
		case <-done:
		}
	}
}
