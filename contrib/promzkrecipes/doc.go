// Package promzkrecipes reports locks, elections and sessions of package recipes to Prometheus, through
// client_golang. Programs that use OpenTelemetry take package otelzkrecipes instead; both have the same names and
// labels in Prometheus, and share the Grafana board and the alerts of otelzkrecipes.
//
//	collector := promzkrecipes.New()
//	prometheus.MustRegister(collector)
//	client, err := recipes.Connect(ctx, servers, recipes.WithTrace(collector.Trace()))
//	if err != nil {
//		return err
//	}
//	defer collector.Observe(client)()
//
// Give each lock a name, as with mutex.WithName: only the name becomes a label. A path, a znode, a fencing token, an
// id or a session id never does, because each may have any number of values.
//
// # Metrics
//
//	zkrecipes_lock_wait_time_seconds      histogram  how long an acquisition took, with its outcome
//	zkrecipes_lock_hold_time_seconds      histogram  how long a lease was held, with its outcome
//	zkrecipes_lock_count                  gauge      leases that are held now
//	zkrecipes_lock_pending_requests       gauge      acquisitions that wait now
//	zkrecipes_lock_lost_total             counter    leases that ended by a loss
//	zkrecipes_election_leader             gauge      1 while this process leads, else 0
//	zkrecipes_election_transitions_total  counter    terms that began in this process
//	zkrecipes_session_state               gauge      0 connected, 1 suspended, 2 lost, 3 closed
//	zkrecipes_session_expirations_total   counter    sessions that were lost
//	zkrecipes_session_reconnects_total    counter    connections that were lost and replaced, by the server that was lost
//	zkrecipes_session_proof_age_seconds   gauge      time since the session was last proven alive
//
// The labels are those of otelzkrecipes: zkrecipes_recipe, zkrecipes_lock_name, zkrecipes_outcome, error_type and
// server_address. Counters start at 0 when a name is first used or a server is first reached, so that the first loss
// is an increase.
//
// # Concurrency
//
// All methods may be called from any goroutine. One Collector serves any number of clients.
package promzkrecipes
