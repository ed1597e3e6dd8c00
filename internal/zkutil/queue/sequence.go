package queue

// SequenceOf returns the number in the name of a contender whose znodes have marker before the number, and false for any other name.
// SequenceOf serves readers that take no part in a queue.
func SequenceOf(name, marker string) (sequence string, ok bool) {
	return sequenceOf(name, []string{marker})
}
