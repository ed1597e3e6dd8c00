package semaphore

import (
	"log/slog"
)

// String returns "semaphore /path", with the path passed to New.
func (s *InterProcessSemaphore) String() string { return s.base.String() }

// LogValue returns a group with the recipe, path, id and name.
func (s *InterProcessSemaphore) LogValue() slog.Value { return s.base.LogValue() }

// String returns "semaphore-mutex /path", with the path passed to NewMutex.
func (m *InterProcessSemaphoreMutex) String() string { return m.semaphore.base.String() }

// LogValue returns a group with the recipe, path, id and name.
func (m *InterProcessSemaphoreMutex) LogValue() slog.Value { return m.semaphore.base.LogValue() }
