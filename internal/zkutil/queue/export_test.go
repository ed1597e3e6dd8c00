package queue

// IsInside reports whether the caller runs inside a function of the user of the candidate.
func (c *Candidate) IsInside() bool { return c.scope.IsOnStack() }

// ParseContenders is what a queue makes of a listing.
func ParseContenders(children, markers []string) []Contender {
	return parseContenders(children, markers)
}
