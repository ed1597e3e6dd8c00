package election

// IsInside reports whether the caller runs inside a function of the user of the candidate.
func (c *Candidate) IsInside() bool { return c.scope.IsOnStack() }
