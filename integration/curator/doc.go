// Package curator runs Apache Curator beside the code under test: a Java process (Agent.java) that takes part in elections
// as it is told line by line.
//
//	agent := curator.New(t, e.Servers(), 4*time.Second)
//	agent.Do(t, "connect", "c")
//	agent.Do(t, "latch", "a", "c", "/election", "an-id")
//
// It needs a JDK and Debian's libcurator-recipes-java (5.4.0).
package curator
