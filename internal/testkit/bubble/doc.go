// Package bubble provides fixtures for tests of locks in virtual time: an ensemble, clients with and without faults, and
// acquisitions in the background. Only tests import it.
package bubble
