//go:build linux

package guard

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/boottime"
)

func TestEchoes(t *testing.T) {
	const term, usr1 = syscall.SIGTERM, syscall.SIGUSR1
	at := func(d time.Duration) boottime.Time { return boottime.Time(time.Hour).Add(d) }
	signals := func(heard []heardSignal) (found []syscall.Signal) {
		for _, one := range heard {
			found = append(found, one.Signal)
		}
		return found
	}
	for name, test := range map[string]struct {
		act  func(e *echoes)
		want []syscall.Signal
	}{
		"own alone":                     {func(e *echoes) { e.onOwn(term, at(0)) }, []syscall.Signal{term}},
		"both, own first":               {func(e *echoes) { e.onOwn(term, at(0)); e.onWatchdogs(term, at(1)) }, nil},
		"both, the watchdog's first":    {func(e *echoes) { e.onWatchdogs(term, at(0)); e.onOwn(term, at(echoTime)) }, nil},
		"both, the watchdog's long ago": {func(e *echoes) { e.onWatchdogs(term, at(0)); e.onOwn(term, at(echoTime+1)) }, []syscall.Signal{term}},
		"another one":                   {func(e *echoes) { e.onOwn(term, at(0)); e.onWatchdogs(usr1, at(1)) }, []syscall.Signal{term}},
		"twice, an echo of one":         {func(e *echoes) { e.onOwn(term, at(0)); e.onOwn(term, at(1)); e.onWatchdogs(term, at(2)) }, []syscall.Signal{term}},
		"in order": {func(e *echoes) {
			e.onOwn(usr1, at(0))
			e.onOwn(syscall.SIGHUP, at(0))
			e.onOwn(term, at(1))
			e.onWatchdogs(syscall.SIGHUP, at(1))
		}, []syscall.Signal{usr1, term}},
	} {
		t.Run(name, func(t *testing.T) {
			var e echoes
			test.act(&e)
			require.Empty(t, e.due(at(echoTime-1)))
			require.Equal(t, test.want, signals(e.due(at(time.Minute))))
			require.Empty(t, e.due(at(time.Hour)))
		})
	}
}
