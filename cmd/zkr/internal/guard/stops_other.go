//go:build !linux

package guard

// ForChild and resetForChild do nothing, because no command runs under a lease on this system.
func (s *Signals) ForChild() {}

func resetForChild() {}
