// Package revoke asks the holder of a lease for it back, by Curator's protocol: the
// peers must agree, nothing is forced.
//
// The request is a write of ten bytes into the znode of the holder, or of a waiter,
// who sees it when its turn comes. Whoever may write there may ask; protect the
// znodes with [recipes.WithACL] if that matters.
//
// # Guarantees
//
// A request that AttemptRevoke reports as made is seen by a Go holder of this
// library: its Lease.Revoked channel is closed, and its revocation listener is
// called, whether the request came before or after the lease was granted. What it
// does then is its own affair.
//
// # Failures
//
// A znode that is gone needs no asking, which is not an error. Lost connections are
// retried under the client's retry policy: the request may be made twice, which the
// holder does not notice.
//
// # Concurrency
//
// A Revoker may be used by any number of goroutines.
package revoke
