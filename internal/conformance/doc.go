// Package conformance tells whether a server is a ZooKeeper: it plays the same steps
// on it as on a real one and compares everything that comes back.
//
// [Run] plays the cases of testdata, each of which shows one idea and holds what a
// real ZooKeeper 3.8 answered. [Diff] plays random steps on two servers side by side.
// Both speak the protocol themselves, so that every frame and its place in the order
// is theirs to choose, and damaged frames can be sent too.
//
// The answers in testdata are never written by hand. After a change of the scripts, in
// integration/conformance:
//
//	go test -run Cases -update .
//
// # Scripts
//
// A step names a session, an operation and its words; see [ParseStep]. Besides the
// requests of the protocol there are
//
//	a connect timeout=10s      a new session
//	a reconnect                the same session on a new connection, with its watches
//	a drop                     the connection is cut
//	a close                    the session is closed
//	a pipeline create /x; delete /x     several requests sent at once
//	a cut create /x; delete /x the same, but the last one is sent in half, and the connection is cut
//	a checks /x /y             a multi that checks several znodes, as the engine sends it
//	a reads /x /y watch        a multiRead of the data of several znodes, or with "children" of these, each part with a watch
//	a multiRead getData /x; getChildren /y     one of any parts
//	a op code=42 hex=00        any operation with any body
//	a bytes hex=ffffffff       anything, and the server is expected to hang up
//	a partial hex=0000         the beginning of a frame
//	a wipe /x                  remove what is below
//
// and words that any request takes:
//
//	truncate=3, extra=3        so many bytes less or more than the body has
//	unanswered                 no answer is expected
//	xid=own                    an xid that zk.Conn never uses, as the engine's own requests have
//	until="b:Deleted /x"       wait until session b has been told
//
// # Transcripts
//
// After each step all connections are pinged and read up to the answer, so that it is
// certain what the step has set off: events stand before or after the answer as they
// came. What differs from run to run is given in a form that doesn't: "z+7" is the
// seventh zxid after the first one seen, sessions go by name, of times only
// contradictions are told (two times for one zxid). Sorted is what a real server takes
// from a set: children, the events at the end of a session, the identities that "auth"
// stands for in an ACL. Everything else is as it came.
package conformance
