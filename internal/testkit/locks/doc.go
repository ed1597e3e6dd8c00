// Package locks provides fixtures for tests of the locks above the queue, in virtual time: contenders for a mutex on one path, the
// two locks of a reader/writer lock, and the permits of a semaphore. It adds the recipes to package bubble. Only tests import it.
package locks
