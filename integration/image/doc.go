// Package image makes the ZooKeeper images of the integration tests, without an image registry.
//
// An image has the ZooKeeper of a Debian suite, with tools for fault tests inside a node (iptables, ip, ps). build.sh does the
// work and can be run by hand. The package embeds its files, so that a test binary finds them from any directory.
package image
