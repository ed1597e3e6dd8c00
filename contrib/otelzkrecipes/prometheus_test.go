package otelzkrecipes_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
)

// scrape plays the scenario and returns the scrape of a Prometheus after it, over HTTP.
func scrape(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewRegistry()
	reader, err := exporter.New(exporter.WithRegisterer(registry))
	require.NoError(t, err)
	n := newNight(newProbe(t, reader))
	n.play()
	n.awaitPoints("zkrecipes.session.reconnects", points{"server.address=127.0.0.1": 2})

	web := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer web.Close()
	answer, err := web.Client().Get(web.URL + "/metrics")
	require.NoError(t, err)
	defer func() { require.NoError(t, answer.Body.Close()) }()
	require.Equal(t, http.StatusOK, answer.StatusCode)
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(answer.Body)
	require.NoError(t, err)
	return families
}

func TestPrometheusNames(t *testing.T) {
	types := map[string]dto.MetricType{}
	for name, family := range scrape(t) {
		if strings.HasPrefix(name, "zkrecipes_") {
			types[name] = family.GetType()
		}
	}
	require.Equal(t, map[string]dto.MetricType{
		"zkrecipes_lock_wait_time_seconds":     dto.MetricType_HISTOGRAM,
		"zkrecipes_lock_hold_time_seconds":     dto.MetricType_HISTOGRAM,
		"zkrecipes_lock_count":                 dto.MetricType_GAUGE,
		"zkrecipes_lock_pending_requests":      dto.MetricType_GAUGE,
		"zkrecipes_lock_lost_total":            dto.MetricType_COUNTER,
		"zkrecipes_election_leader":            dto.MetricType_GAUGE,
		"zkrecipes_election_transitions_total": dto.MetricType_COUNTER,
		"zkrecipes_session_state":              dto.MetricType_GAUGE,
		"zkrecipes_session_expirations_total":  dto.MetricType_COUNTER,
		"zkrecipes_session_reconnects_total":   dto.MetricType_COUNTER,
		"zkrecipes_session_proof_age_seconds":  dto.MetricType_GAUGE,
	}, types)
}

// series are the labels of each series that Prometheus makes of the families, by the name in queries.
func series(families map[string]*dto.MetricFamily) map[string]map[string]bool {
	all := map[string]map[string]bool{}
	add := func(name string, m *dto.Metric, more ...string) {
		if all[name] == nil {
			all[name] = map[string]bool{"instance": true, "job": true} // of Prometheus
		}
		for _, label := range m.GetLabel() {
			all[name][label.GetName()] = true
		}
		for _, label := range more {
			all[name][label] = true
		}
	}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetType() != dto.MetricType_HISTOGRAM {
				add(name, m)
				continue
			}
			add(name+"_bucket", m, "le")
			add(name+"_sum", m)
			add(name+"_count", m)
		}
	}
	return all
}

type panel struct {
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	Targets                  []struct{ Expr, LegendFormat string }
}

func readBoard(t *testing.T, file string) []panel {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	var board struct {
		Title, UID string
		Panels     []panel
		Templating struct{ List []struct{ Name, Type string } }
	}
	require.NoError(t, json.Unmarshal(content, &board))
	require.NotEmpty(t, board.Title)
	require.NotEmpty(t, board.UID)
	var variables []string
	for _, v := range board.Templating.List {
		variables = append(variables, v.Name)
	}
	for _, name := range regexp.MustCompile(`\$\{?(\w+)`).FindAllStringSubmatch(string(content), -1) {
		if !strings.HasPrefix(name[1], "__") { // Grafana's own
			require.Contains(t, variables, name[1])
		}
	}
	return board.Panels
}

var (
	selector = regexp.MustCompile(`([a-z][a-z_]*)\{([^}]*)\}`)
	matcher  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"`)
	grouping = regexp.MustCompile(`by \(([^)]*)\)`)
	legend   = regexp.MustCompile(`\{\{(\w+)\}\}`)
	ours     = regexp.MustCompile(`zkrecipes_\w+`)
)

// Each query of the board asks for metrics and labels that a scrape has, and all metrics are on the board.
func TestBoard(t *testing.T) {
	known := series(scrape(t))
	used := map[string]bool{}
	files, err := filepath.Glob("grafana/*.json")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		for _, p := range readBoard(t, file) {
			require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
			if p.Type == "row" {
				continue
			}
			require.NotEmpty(t, p.Description, p.Title)
			require.NotEmpty(t, p.Targets, p.Title)
			for _, target := range p.Targets {
				for _, name := range requireQuery(t, known, target.Expr, target.LegendFormat) {
					used[strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_count")] = true
				}
			}
		}
	}
	require.Len(t, slices.Sorted(maps.Keys(used)), 11)
}

// requireQuery checks a query, and returns the queried metrics.
func requireQuery(t *testing.T, known map[string]map[string]bool, query, legends string) (names []string) {
	t.Helper()
	var labels []string
	for _, found := range selector.FindAllStringSubmatch(query, -1) {
		name := found[1]
		require.Contains(t, known, name, query)
		names = append(names, name)
		for _, label := range matcher.FindAllStringSubmatch(found[2], -1) {
			labels = append(labels, label[1])
		}
	}
	require.NotEmpty(t, names, query)
	for _, found := range grouping.FindAllStringSubmatch(query, -1) {
		labels = append(labels, strings.Split(found[1], ", ")...)
	}
	for _, found := range legend.FindAllStringSubmatch(legends, -1) {
		labels = append(labels, found[1])
	}
	for _, label := range labels {
		for _, name := range names {
			require.True(t, known[name][label], "%s has no label %s: %s", name, label, query)
		}
	}
	for _, word := range ours.FindAllString(query, -1) { // nothing else looks like ours
		require.True(t, slices.Contains(names, word) || slices.Contains(labels, word), "%s: %s", word, query)
	}
	return names
}

// Each alert queries metrics and labels that exist in a scrape. If promtool is installed, the test runs
// alerts_test.yml, too.
func TestAlerts(t *testing.T) {
	known := series(scrape(t))
	content, err := os.ReadFile("prometheus/alerts.yml")
	require.NoError(t, err)
	names := regexp.MustCompile(`zkrecipes_\w+`).FindAllString(string(content), -1)
	require.Greater(t, len(names), 20)
	labels := map[string]bool{}
	for _, ofOne := range known {
		maps.Copy(labels, ofOne)
	}
	for _, name := range names {
		require.True(t, known[name] != nil || labels[name], name)
	}
	require.Contains(t, string(content), "absent(")
}
