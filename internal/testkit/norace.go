//go:build !race

package testkit

// IsRaced reports whether the race detector is on. If so, everything takes about four times as long.
const IsRaced = false
