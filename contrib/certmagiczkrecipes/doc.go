// Package certmagiczkrecipes gives a certmagic.Storage locks in ZooKeeper, so that several hosts obtain each certificate once.
// Certificates, keys and accounts stay in the storage of the program.
//
//	storage, err := certmagiczkrecipes.New(client, "/locks/certmagic", &certmagic.FileStorage{Path: shared})
//	if err != nil {
//		return err
//	}
//	certmagic.Default.Storage = storage
//
// All hosts must use the same storage, such as a shared folder, a database or a bucket, and the same path. A host that locks in
// another way does not exclude these hosts.
//
// # Locks
//
// Each name of a lock is a mutex at path/recipes.Segment(name), as of package mutex: hosts get it in the order in which they
// asked, and the lock of a killed host is free when its session expires. Inside a process one caller at a time holds or awaits
// a name, also while the lock of the first is lost. So Unlock, which knows nothing but the name, never releases the lock of another
// caller. Storage also is a certmagic.TryLocker and a certmagic.LockLeaseRenewer.
//
// # Failures
//
//	what happens                       what certmagic sees
//	Lock can't reach a server          Lock waits, within its context and the client's retry policy
//	the context of Lock ends           a *recipes.WaitError, which also matches the error of the context
//	the session is lost meanwhile      nothing until the next attempt of an operation with retries, which then acquires the lock
//	                                   again and reads the storage again; otherwise Unlock returns ErrSessionLost, which
//	                                   certmagic logs as "unable to unlock"
//	Unlock can't reach a server        ErrNodeNotDeleted; the deletion is repeated in the background
//	Unlock without a Lock              ErrNotHeld
//	the client is closed meanwhile     Unlock returns ErrClosed
//
// The interface of certmagic has no context that ends with a lock. So after a loss two hosts may obtain the same certificate. The
// later one stays in the storage, and both are valid. The storage knows no fencing token, and refuses neither.
//
// # Concurrency
//
// All methods may be called from any goroutine, those of the storage as far as it allows.
package certmagiczkrecipes
