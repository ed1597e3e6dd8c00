package recipe

import "context"

// workContext is the context of Do's function. It has the deadline of Do's own context, and ends with
// Do's context, with the same error and cause. It has the values of the lease's context, and ends with
// the lease, too.
//
// A context can't be the child of two contexts. So workContext derives from Do's context, because only a
// child has the error and the cause of a deadline. The end of the lease follows in a function of
// context.AfterFunc; a caller of Err or Value that comes before this function ends the context itself.
type workContext struct {
	context.Context // ends with Do's own context

	lease  context.Context //nolint:containedctx // the lease's
	values context.Context //nolint:containedctx // the lease's, which never ends: package context looks for causes among the values
	cancel context.CancelCauseFunc
}

// newWorkContext returns the context for the work under a lease. end ends the context, with cause unless
// it has already ended.
func newWorkContext(ctx, lease context.Context) (c *workContext, end context.CancelCauseFunc) {
	c = &workContext{lease: lease, values: context.WithoutCancel(lease)}
	c.Context, c.cancel = context.WithCancelCause(ctx)
	unbind := context.AfterFunc(lease, c.endWithLease)
	return c, func(cause error) {
		unbind()
		c.endWithLease()
		c.cancel(cause)
	}
}

// endWithLease ends the context if the lease has ended.
func (c *workContext) endWithLease() {
	if c.lease.Err() != nil {
		c.cancel(context.Cause(c.lease))
	}
}

// Err returns why the context has ended, nil if it has not.
func (c *workContext) Err() error {
	c.endWithLease()
	return c.Context.Err()
}

// Value returns a value of the lease's context. For the internal keys of package context, it returns the
// value of Do's own context.
func (c *workContext) Value(key any) any {
	c.endWithLease()
	if value := c.values.Value(key); value != nil {
		return value
	}
	return c.Context.Value(key)
}
