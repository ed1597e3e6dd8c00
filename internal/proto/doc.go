// Package proto is the ZooKeeper protocol as bytes: the jute fields that a frame is
// made of, and the codes of operations, errors and events.
//
// Source of the numbers and layouts: zookeeper.jute, ZooDefs.OpCode,
// KeeperException.Code and Watcher.Event.EventType of Apache ZooKeeper 3.8.
package proto
