package dial

import (
	"sync/atomic"
	"testing/synctest"
	"time"
)

// testOwner is an Owner with a fixed patience, which counts the panics.
type testOwner struct {
	patience time.Duration
	isSaving bool
	refusal  error        // of every dial
	panics   atomic.Int32 // of the user's functions
}

func (o *testOwner) Patience() time.Duration                          { return o.patience }
func (o *testOwner) LimitDial(p time.Duration) (time.Duration, error) { return p, o.refusal }
func (*testOwner) RoundPause() time.Duration                          { return 0 }
func (*testOwner) IsInUse() bool                                      { return false }
func (o *testOwner) IsSaving() bool                                   { return o.isSaving }
func (o *testOwner) OnPanic(any, []byte)                              { o.panics.Add(1) }
func (*testOwner) OnFailure(error, Refusal)                           {}

// pass lets virtual time pass, including all events due at the end of d.
func pass(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // virtual time
	synctest.Wait()
}
