package cli

import (
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
	"github.com/zkrecipes/zkrecipes/recipes/rwlock"
	"github.com/zkrecipes/zkrecipes/recipes/semaphore"
)

// newReadWriteMode is one side of a read-write lock.
func newReadWriteMode(isShared bool) (mode, error) {
	return mode{inspect.KindRWLock, func(c *recipes.Client, path, id string) (locker, error) {
		lock, err := rwlock.New(c, path, rwlock.WithID(id))
		switch {
		case err != nil:
			return nil, err
		case isShared:
			return lock.ReadLock(), nil
		default:
			return lock.WriteLock(), nil
		}
	}}, nil
}

// newSemaphoreMode is one permit of a semaphore.
func newSemaphoreMode(permits int) (mode, error) {
	return mode{inspect.KindSemaphore, func(c *recipes.Client, path, id string) (locker, error) {
		return semaphore.New(c, path, permits, semaphore.WithID(id))
	}}, nil
}
