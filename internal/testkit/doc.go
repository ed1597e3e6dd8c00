// Package testkit has what tests of all packages need: waits for a condition or a value, plain connections, paths of a test's
// own. Package testclient below it has the clients of this library: it is a package of its own because the tests inside
// internal/zkutil use this one, and must not import themselves.
//
// Only tests import it. It fails a test without testify, because the library must not depend on that.
package testkit
