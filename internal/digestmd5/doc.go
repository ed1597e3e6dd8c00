// Package digestmd5 speaks DIGEST-MD5 (RFC 2831) as ZooKeeper does: both sides without a security layer, the client as
// [Client], and the server as [Server] for tests. ZooKeeper uses the implementation of the JDK, with the
// service "zookeeper" on the host "zk-sasl-md5" whatever the server's name is (SecurityUtils).
package digestmd5
