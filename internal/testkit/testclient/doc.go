// Package testclient connects tests to servers: real ones, and those of package zktest. Only tests import it.
package testclient
