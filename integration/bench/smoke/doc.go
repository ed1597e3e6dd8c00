// Package smoke counts the cost of a lock: requests, packets, round trips, events, bytes and allocations. It measures no time,
// so its figures are the same on every machine, and compares each with a limit. limits_test.go has the table.
package smoke
