package mutex

import (
	"log/slog"
)

// String returns "mutex /path", with the path passed to New.
func (m *InterProcessMutex) String() string { return m.base.String() }

// LogValue returns a group with the recipe, path, id and name.
func (m *InterProcessMutex) LogValue() slog.Value { return m.base.LogValue() }
