// Package faultproxy stands between clients and one ZooKeeper server, reads their frames, and breaks the line where a
// test says.
//
//	p := faultproxy.New(t, e.Server(0))
//	conn, _, err := zk.Connect([]string{p.Addr()}, 4*time.Second)
//	lost := p.DropReply(faultproxy.Op("create"), 1) // the next create is applied and its answer lost
//
// A server answers everything on a connection in order or the connection dies. The proxy preserves that: dropping a
// request or a reply ends its connection, and delaying a frame delays all later frames.
//
// # Faults
//
//   - Cut, Refuse: connections end, or cannot be made.
//   - Hold, HoldUp, HoldDown, Release: the line goes silent and nobody is told.
//   - Delay: every frame arrives later.
//   - DropRequest, DropReply: a request, or the answer to one that was applied, is lost together with its connection.
//   - DelayReply: the answers to some requests arrive later.
//   - OnRequest, BeforeReply, HoldRequest, HoldReply: a test acts, or takes its time, at one exact step.
//
// A request passes, in this order, the delay, the line's hold, the log and the counts, the OnRequest hooks, the rules
// (oldest first), and the hold again, so that a hook may close the line before the very request that it saw.
//
// # Limits
//
// Frames must be readable, so TLS and four-letter words are not supported. SASL and other exchanges after the handshake
// pass through.
//
// # Concurrency
//
// All methods may be called from any goroutine. Hooks and matchers run on the goroutines that carry the frames: they may
// call any method but Close, and must return once the proxy is closed. Session ids are kept out of every String.
package faultproxy
