// Package revoke asks the holder of a lease to release it, by Curator's protocol. The holder decides, and a request
// forces nothing.
//
// The request is a write of ten bytes into the znode of the holder, or of a waiter, which sees the request in its
// turn. Any client with write permission for the znode may ask; if necessary, protect the znodes with
// [recipes.WithACL].
//
// # Guarantees
//
// If AttemptRevoke reports success, a Go holder of this library sees the request: its Lease.Revoked channel is closed,
// and its revocation listener is called, whether the request arrived before or after the grant. The holder then decides
// how to respond.
//
// # Failures
//
// A deleted znode is not an error, because nothing is held there. After a lost connection the request
// is repeated under the client's retry policy. The holder does not notice a second request.
//
// # Concurrency
//
// A Revoker may be used by any number of goroutines.
package revoke
