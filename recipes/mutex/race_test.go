//go:build race

package mutex_test

// The race detector makes the tests in virtual time about four times as slow: they
// try fewer instants then.
func init() { raced = true }
