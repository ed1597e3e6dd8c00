//go:build race

package testkit

// IsRaced tells that the race detector is on. Everything takes about four times as long then.
const IsRaced = true
