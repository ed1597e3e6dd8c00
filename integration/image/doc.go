// Package image makes the ZooKeeper images of the integration tests, without an image registry.
//
// An image has the ZooKeeper of a Debian suite, with the tools that fault tests need inside a node (iptables, ip, ps). build.sh does the
// work and can be run by hand; the package carries its files, so that a test binary finds them wherever it runs.
package image
