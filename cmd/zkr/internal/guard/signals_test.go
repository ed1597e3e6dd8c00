package guard

import (
	"context"
	"errors"
	"os/signal"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/zkrecipes/zkrecipes/cmd/zkr/internal/process.reap"))
}

// A signal at the end of a wait either ends the wait or is kept for Run.
func TestSignalAtTheEndOfAWait(t *testing.T) {
	s := NewSignals()
	defer signal.Reset()
	for range 1000 {
		waiting, stop := s.EndWait(context.Background())
		s.c <- syscall.SIGTERM
		stop()
		if errors.Is(context.Cause(waiting), SignalError{syscall.SIGTERM}) {
			require.Empty(t, s.c)
			continue
		}
		require.Len(t, s.c, 1, "the signal is lost")
		<-s.c
	}
}
