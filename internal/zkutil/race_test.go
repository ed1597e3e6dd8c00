//go:build race

package zkutil

func init() { raced = true }
