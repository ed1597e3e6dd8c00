package queue

// ParseContenders is what a queue makes of a listing.
func ParseContenders(children, markers []string) []Contender {
	return parseContenders(children, markers)
}
