package selector_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(serveMode) != "" {
		serve()
		return
	}
	goleak.VerifyTestMain(m)
}
