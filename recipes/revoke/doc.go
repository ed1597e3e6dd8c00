// Package revoke asks the holder of a lease to release it, by Curator's protocol. The holder decides:
// a request forces nothing.
//
// The request is a write of ten bytes into the znode of the holder, or of a waiter, which sees it when
// its turn comes. Every client that may write there may ask; protect the znodes with
// [recipes.WithACL] if that matters.
//
// # Guarantees
//
// A request that AttemptRevoke reports as made is seen by a Go holder of this
// library: its Lease.Revoked channel is closed, and its revocation listener is
// called, whether the request came before or after the lease was granted. The holder decides
// what to do then.
//
// # Failures
//
// A znode that is gone is not an error, because nothing is held there. After a lost connection the
// request is repeated under the client's retry policy. The holder does not notice a second request.
//
// # Concurrency
//
// A Revoker may be used by any number of goroutines.
package revoke
