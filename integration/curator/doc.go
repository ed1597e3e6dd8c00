// Package curator runs Apache Curator beside the code under test, in a Java process that takes part in locks and elections on
// command (Agent.java).
//
//	agent := curator.New(t, e.Servers(), 4*time.Second)
//	agent.Do(t, "connect", "c")
//	agent.Do(t, "latch", "a", "c", "/election", "an-id")
//
// It needs a JDK and Debian's libcurator-recipes-java (5.4.0), or fetches the Curator of the Debian suite named by ZK.
package curator
