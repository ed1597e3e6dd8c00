// Package conformance checks whether a server behaves like ZooKeeper: it plays the same
// steps on the server and on a real ZooKeeper, and compares all answers.
//
// [Run] plays the cases of testdata, each of which shows one idea and holds the answers of
// a real ZooKeeper 3.8. [Diff] plays random steps on two servers side by side. Both
// implement the protocol themselves, and so control every frame and its place in the order,
// and can send damaged frames, too.
//
// The answers in testdata are never written by hand. After a change of the scripts, run in
// integration/conformance:
//
//	go test -run Cases -update .
//
// # Scripts
//
// A step names a session, an operation and its arguments; see [ParseStep]. Besides the
// protocol's requests, the operations are
//
//	a connect timeout=10s      open a new session
//	a reconnect                reconnect the same session, with its watches
//	a drop                     cut the connection
//	a close                    close the session
//	a pipeline create /x; delete /x     send several requests at once
//	a cut create /x; delete /x the same, but send only half of the last request, and cut the connection
//	a checks /x /y             send a multi that checks several znodes, as the engine sends it
//	a reads /x /y watch        send a multiRead of several znodes' data, or with "children" of their children, each part with a watch
//	a multiRead getData /x; getChildren /y     send a multiRead of any parts
//	a op code=42 hex=00        send any operation with any body
//	a bytes hex=ffffffff       send any bytes, and expect the server to hang up
//	a partial hex=0000         send the beginning of a frame
//	a wipe /x                  remove all znodes below a path
//
// and the arguments of any request:
//
//	truncate=3, extra=3        shorten or lengthen the body by some bytes
//	minus1=2                   write −1 in place of the second length in the body, without the bytes or elements that it counts
//	unanswered                 expect no answer
//	xid=own                    use an xid that zk.Conn never uses, as the engine's own requests do
//	until="b:Deleted /x"       wait until session b is notified
//
// # Transcripts
//
// After each step all connections are pinged and read up to the answer, so that all effects
// of the step are known: events appear before or after the answer, in the order of arrival.
// Values that vary between runs have a fixed form: "z+7" is the seventh zxid after the
// first zxid seen, sessions go by name, and times appear only as contradictions (two times
// for one zxid). Items that a real server takes from a set are sorted: children, the events
// at the end of a session, and the identities for "auth" in an ACL. Everything else appears
// unchanged.
package conformance
