//go:build race

package zktest_test

// The race detector dies of more than 8,128 goroutines.
func init() { capacity = 2_000 }
