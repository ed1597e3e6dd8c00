package session

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// countedContext counts the functions registered on its end by package context.
type countedContext struct {
	context.Context //nolint:containedctx // without an end or a value

	waiting int
}

func (*countedContext) Done() <-chan struct{} { return make(chan struct{}) }

func (c *countedContext) AfterFunc(func()) (stop func() bool) {
	c.waiting++
	return func() bool { c.waiting--; return true }
}

// A context that ends with the session is released with each call, because the session, which lives as long as the program,
// must not collect them.
func TestContextsOfCallsLeaveTheSession(t *testing.T) {
	open := &countedContext{Context: context.Background()}
	s := &Session{life: lifecycle{open: open}}
	for range 3 {
		ctx, cancel := s.WhileOpen(t.Context())
		require.Equal(t, 1, open.waiting)
		cancel()
		require.Error(t, ctx.Err())
		require.Zero(t, open.waiting)
	}
}
