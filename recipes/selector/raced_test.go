//go:build race

package selector_test

func init() { raced = true }
