// Package fxzkrecipes starts and stops clients and elections of package recipes with an application of go.uber.org/fx.
//
//	fx.New(
//		fxzkrecipes.Client(servers),           // provides a *recipes.Client
//		fxzkrecipes.Latch("/elections/report"), // provides a *latch.LeaderLatch
//		…
//	).Run()
//
// Where the servers or the leader's function come from other constructors, call [NewClient], [NewLatch] or [NewSelector] in a
// constructor of the program:
//
//	fx.Invoke(func(lc fx.Lifecycle, client *recipes.Client, job *Job) error {
//		_, err := fxzkrecipes.NewSelector(lc, client, "/jobs/report", job.Run, selector.WithAutoRequeue())
//		return err
//	})
//
// # Start
//
// The context of an OnStart hook ends when the application has started. Nothing that lives longer may depend on it: a
// selector.Run or a Do with that context would end right after the start. The hooks of this package use it for a wait alone:
// the start of the client waits for the first connection, so that an application without ZooKeeper fails to start, with the latest
// failure in the error. Elections start without a wait. The context of a term is independent of the start.
//
// # Stop
//
// Fx calls OnStop hooks in the reverse order of constructors, so that an election stops before the client, and before all
// that the leader's function was made with. The stop of an election ends the context of the term, waits for the leader's
// function, and deletes the znode, so that no other process leads before the function returns. The stop of the client is
// Shutdown with the hook's context. fx.StopTimeout bounds all hooks together, and is 15 s by default.
//
// # Failures
//
//	what happens                               result
//	no server answers during the start         Start fails with the error of Client.Await; the client is closed
//	another hook fails during the start        fx calls the OnStop hooks of what was started
//	a constructor fails in fx.New              fx calls no hook: the program has to exit, as after any error of fx.New
//	a leader's function ignores its context    Stop fails when its context ends, and its znode keeps others from leading
//	                                           until the function returns or the process exits
//	the session is lost later                  the term ends, and elections join again; the application continues
//
// # Concurrency
//
// See the packages of the values that are provided.
package fxzkrecipes
