// Package testkit provides helpers for tests of all packages: waits for a condition or a value, plain connections, and unique
// paths. The package testclient below has clients of this library: testclient is separate because the tests inside
// internal/zkutil use testkit, and must not import themselves.
//
// Only tests import testkit. It fails tests without testify, because the library must not depend on testify.
package testkit
