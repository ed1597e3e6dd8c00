// Package zkclient connects tests to the ZooKeeper of package zktest.
package zkclient
