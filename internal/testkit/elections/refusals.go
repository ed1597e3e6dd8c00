package elections

import (
	"testing/synctest"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// QuotaExceeded is an error code without a name in package zk.
const QuotaExceeded zktest.Refusal = -125

// Refuse makes the server answer the requests of an operation with a refusal.
func Refuse(srv *zktest.Server, op zktest.Op, refusal zktest.Refusal) (allow func()) {
	return srv.Inject(func(r zktest.Request) zktest.Fault {
		if r.Op == op {
			return zktest.Fault{Refusal: refusal}
		}
		return zktest.Fault{}
	})
}

// Forbid makes the server refuse an operation for lack of permission.
func Forbid(srv *zktest.Server, op zktest.Op) (allow func()) {
	return Refuse(srv, op, zktest.RefuseNoAuth)
}

// Taken returns the errors waiting in a channel.
func Taken(errs <-chan error) (all []error) {
	for synctest.Wait(); len(errs) > 0; {
		all = append(all, <-errs)
	}
	return all
}
