// Package track follows the configuration of an ensemble, and leaves servers that are no longer members.
//
// A tracked session reads the configuration on each connection, and watches it. A dial.Tracker decides which servers to try from
// then on. If the session is connected to a server that left the ensemble, the session reconnects as soon as a member takes
// connections. The session and its holds survive that. A removed server serves until an operator stops it, so the reconnect is
// not urgent. A session leaves a server once per session timeout at most, because the next server may show another
// configuration.
package track
