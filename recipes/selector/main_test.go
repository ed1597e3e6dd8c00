package selector_test

import (
	"log/slog"
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(serveMode) != "" {
		serve()
		return
	}
	slog.SetDefault(slog.New(slog.DiscardHandler)) // where clients without a logger log
	goleak.VerifyTestMain(m)
}
