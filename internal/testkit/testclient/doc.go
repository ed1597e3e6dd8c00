// Package testclient connects tests to real servers and to servers of package zktest. Only tests import it.
package testclient
