// Package logs passes the records of a session to the user's logger.
//
// The handler of a logger is code of the user, too. It runs neither under a lock nor in a goroutine of zk.Conn, but in an
// order of package callbacks. While a handler hangs, callbacks.MaxQueued records wait. Later records are dropped, and the
// next record passed to the handler reports their number.
package logs
