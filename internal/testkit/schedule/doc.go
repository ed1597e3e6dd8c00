// Package schedule plays seeded schedules of faults on a lock, in virtual time, and judges the observations of the clients.
// Only tests import it. The seed alone determines a schedule.
package schedule
