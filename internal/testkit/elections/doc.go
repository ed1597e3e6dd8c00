// Package elections provides fixtures for tests of latches and selectors in virtual time: participants of one election, a journal of
// their callbacks, and refusals of the server. Only tests import this package.
package elections
