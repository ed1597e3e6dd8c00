// Package kazoo runs Python's ZooKeeper client beside the code under test, in a process that takes part in locks on command
// (agent.py). Package curator does the same for Java.
//
//	agent := kazoo.New(t, e.Servers(), 4*time.Second)
//	agent.Do(t, "connect", "c")
//	agent.Do(t, "mutex", "a", "c", "/lock", "curator", "an-id")
//
// It needs Debian's python3-kazoo (2.8.0), or kazoo for the first python3 found.
package kazoo
