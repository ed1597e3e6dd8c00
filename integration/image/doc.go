// Package image makes the ZooKeeper image that the integration tests fall back on where no image registry is reached.
//
// It is Debian's ZooKeeper 3.8 with the tools that fault tests need inside a node (iptables, ip, ps). build.sh does the
// work and can be run by hand; the package carries its files, so that a test binary finds them wherever it runs.
package image
