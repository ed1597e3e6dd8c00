package promzkrecipes

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/zkrecipes/zkrecipes/internal/telemetry"
	"github.com/zkrecipes/zkrecipes/recipes"
)

func (c *Collector) stateChange(change recipes.StateChange) {
	server := telemetry.ServerName(change.Server)
	switch change.To {
	case recipes.Connected, recipes.Reconnected: // both counters of a server start at 0 when it is reached
		c.expirations.WithLabelValues(server)
		c.reconnects.WithLabelValues(server)
	case recipes.Lost:
		c.expirations.WithLabelValues(server).Inc()
	}
	if change.To == recipes.Reconnected { // counted for the server before, whose counter was 0 when it was scraped
		c.reconnects.WithLabelValues(telemetry.ServerName(change.LostServer)).Inc()
	}
}

// observed is a client that Observe was called with.
type observed struct{ client *recipes.Client }

// Observe reports the session's state and the age of its proof, at each scrape, until stop is called. Of several
// clients with the same server, the worst state and the highest age are shown. Call stop once the client is closed. It
// may be called more than once.
//
// A client without leases and waiters sends no proof, so the age matters only while leases are held.
func (c *Collector) Observe(client *recipes.Client) (stop func()) {
	o := &observed{client}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clients[o] = struct{}{}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.clients, o)
	}
}

func (c *Collector) collectSessions(metrics chan<- prometheus.Metric) {
	states, ages := map[string]float64{}, map[string]float64{}
	for _, client := range c.observedClients() {
		health := client.Health()
		server := telemetry.ServerName(health.Server)
		states[server] = max(states[server], float64(telemetry.StateNumber(health.State)))
		if !health.LastProof.IsZero() {
			ages[server] = max(ages[server], time.Since(health.LastProof).Seconds())
		}
	}
	for server, state := range states {
		metrics <- prometheus.MustNewConstMetric(c.state, prometheus.GaugeValue, state, server)
	}
	for server, age := range ages {
		metrics <- prometheus.MustNewConstMetric(c.proofAge, prometheus.GaugeValue, age, server)
	}
}

func (c *Collector) observedClients() (clients []*recipes.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for o := range c.clients {
		clients = append(clients, o.client)
	}
	return clients
}
