// Package callbacks runs functions of the user: listeners, handlers, hooks.
//
// An [Order] runs its functions one at a time, in the order of posting, under no lock. A [Runner] counts the goroutines of
// all orders, so that their owner can wait for them. A panic in a function is contained, and so is runtime.Goexit.
package callbacks
