// Package schedule plays seeded schedules of faults on a lock, in virtual time, and judges what its clients see. Only tests import
// it. A schedule follows from its seed alone.
package schedule
