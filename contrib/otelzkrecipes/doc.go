// Package otelzkrecipes reports locks, elections and sessions of package recipes to OpenTelemetry: as
// metrics, and as a span for each acquisition.
//
//	telemetry, err := otelzkrecipes.New()
//	if err != nil {
//		return err
//	}
//	client, err := recipes.Connect(ctx, servers, recipes.WithTrace(telemetry.Trace()))
//	if err != nil {
//		return err
//	}
//	stop, err := telemetry.Observe(client)
//
// Give each lock a name, as with mutex.WithName, because only the name becomes an attribute. Paths, znodes, fencing
// tokens and ids are never attributes, because they may have any number of values. Neither are session ids, because a
// client that knows a session id can end the session.
//
// # Metrics
//
//	zkrecipes.lock.wait_time          histogram, s    how long an acquisition took, with its outcome
//	zkrecipes.lock.hold_time          histogram, s    how long a lease was held, with its outcome
//	zkrecipes.lock.count              up-down counter leases that are held now
//	zkrecipes.lock.pending_requests   up-down counter acquisitions that wait now
//	zkrecipes.lock.lost               counter         leases that ended by a loss
//	zkrecipes.election.leader         up-down counter 1 while this process leads, else 0
//	zkrecipes.election.transitions    counter         terms that began in this process
//	zkrecipes.session.state           gauge           0 connected, 1 suspended, 2 lost, 3 closed
//	zkrecipes.session.expirations     counter         sessions that were lost
//	zkrecipes.session.reconnects      counter         connections that were lost and replaced, by the lost server
//	zkrecipes.session.proof_age       gauge, s        time since the session was last proven alive
//
// The lock metrics count leases of all recipes, a term of leadership too. A re-entry is part of the lease
// that it enters again: it has a span and nothing else. Counters start at 0 when a lock's name is first
// used, so that the first loss is an increase.
//
// # Attributes
//
//	zkrecipes.recipe      mutex, read-lock, write-lock, semaphore, semaphore-mutex, latch, selector, once
//	zkrecipes.lock.name   the lock's name; missing if it has none
//	zkrecipes.outcome     of an acquisition: acquired, not_acquired (a try), timeout, canceled, error
//	                      of a lease: released, lost, closed (with its client), failed (a term
//	                      whose function or listener has failed), max_hold (ended by WithMaxHold)
//	error.type            session_lost, suspended, node_deleted, deadline_exceeded, …, or _OTHER
//	server.address        the server's host: of the session metrics; missing while there is no connection
//
// # Spans
//
// An acquisition is a span "acquire NAME" from the call to its end. It is a child of the span in the caller's
// context, and the exemplar of the measurements in between.
//
// # Concurrency
//
// All methods may be called from any goroutine. One Telemetry serves any number of clients.
package otelzkrecipes
