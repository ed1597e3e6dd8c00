package once

import (
	"log/slog"
)

// String returns "once /path", with the path passed to New.
func (o *Once) String() string { return o.base.String() }

// LogValue returns a group with the recipe, path, id and name.
func (o *Once) LogValue() slog.Value { return o.base.LogValue() }
