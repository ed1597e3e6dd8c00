// Package proto is the ZooKeeper protocol as bytes: the jute fields of a frame, the codes of operations, errors and events, and
// the check whether a frame is whole. No length in a frame is believed: see [Decoder] and [Layout].
//
// Source of the numbers and layouts: zookeeper.jute, ZooDefs.OpCode,
// KeeperException.Code and Watcher.Event.EventType of Apache ZooKeeper 3.8.
package proto
