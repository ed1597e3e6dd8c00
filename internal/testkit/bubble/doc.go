// Package bubble is the kit of tests in virtual time: waits, acquisitions in the background, the ends of leases, an ensemble, and
// clients with and without faults. The packages fixture, locks and elections beside it add what the tests of one floor need.
// Only tests import it.
package bubble
