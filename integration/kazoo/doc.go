// Package kazoo runs Python's ZooKeeper client beside the code under test: a process that takes part in locks as it is told,
// command by command (agent.py). Package curator does the same for Java.
//
//	agent := kazoo.New(t, e.Servers(), 4*time.Second)
//	agent.Do(t, "connect", "c")
//	agent.Do(t, "mutex", "a", "c", "/lock", "curator", "an-id")
//
// It needs Debian's python3-kazoo (2.8.0), or kazoo for whatever python3 is found first.
package kazoo
