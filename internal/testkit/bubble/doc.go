// Package bubble has what the tests of locks in virtual time need: an ensemble, clients with and without troubles, and
// acquisitions in the background. Only tests import it.
package bubble
