package zktest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(ensemble.Main(m)) }
