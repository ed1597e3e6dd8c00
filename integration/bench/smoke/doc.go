// Package smoke counts what a lock costs: requests, packets, round trips, events, bytes and allocations. It measures no time, so
// that its figures are the same on every machine, and asserts each against a limit. See limits_test.go for the table.
package smoke
