package chaos

import (
	"context"
	"log/slog"
	"strings"
)

// listener hears when the client leaves a server that shows a ghost.
type listener struct {
	slog.Handler // none
	worker       *worker
}

func (l listener) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (l listener) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "znode" && strings.Contains(r.Message, "shows a deleted znode") {
			l.worker.record(Event{What: Haunted, By: l.worker.name(), Znode: a.Value.String()})
		}
		return true
	})
	return nil
}
