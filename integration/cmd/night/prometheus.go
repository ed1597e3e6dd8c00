package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// watcher is a Prometheus that scrapes the workers once a second. Its rules are those of contrib, with seconds in
// place of minutes, because a night is short.
type watcher struct {
	cmd   *exec.Cmd
	url   string
	board string // the file of the Grafana board
}

var ruleTime = regexp.MustCompile(`((?:for: |offset |\[)\d+)m\b`)

// startPrometheus starts the program of Debian's package prometheus.
func startPrometheus(ctx context.Context, dir, contrib string, workers []*worker) (*watcher, error) {
	rules, err := os.ReadFile(filepath.Join(contrib, "prometheus", "alerts.yml"))
	if err != nil {
		return nil, err
	}
	rules = ruleTime.ReplaceAll(rules, []byte("${1}s"))
	var config strings.Builder
	config.WriteString("global: {scrape_interval: 1s, scrape_timeout: 900ms, evaluation_interval: 1s}\nrule_files: [alerts.yml]\nscrape_configs:\n  - job_name: worker\n    static_configs:\n")
	for _, w := range workers {
		address := strings.TrimPrefix(w.url, "http://")
		fmt.Fprintf(&config, "      - targets: [%q]\n", address)
	}
	config.WriteString("    relabel_configs:\n")
	for _, w := range workers { // instances are named as the workers
		fmt.Fprintf(&config, "      - {source_labels: [__address__], regex: %q, target_label: instance, replacement: %s}\n",
			regexp.QuoteMeta(strings.TrimPrefix(w.url, "http://")), w.id)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := listener.Addr().String()
	err = errors.Join(listener.Close(), os.WriteFile(filepath.Join(dir, "alerts.yml"), rules, 0o600), os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config.String()), 0o600))
	if err != nil {
		return nil, err
	}
	p := &watcher{
		url: "http://" + address, board: filepath.Join(contrib, "grafana", "zkrecipes.json"),
		cmd: exec.CommandContext(ctx, "prometheus", "--config.file", filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path", filepath.Join(dir, "tsdb"),
			"--web.listen-address", address, "--log.level", "error"),
	}
	p.cmd.Stderr = os.Stderr
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	for until := time.Now().Add(patience); ; pause(ctx, 100*time.Millisecond) {
		if _, err := p.query(ctx, "up"); err == nil {
			return p, nil
		} else if time.Now().After(until) || ctx.Err() != nil {
			p.stop()
			return nil, err
		}
	}
}

func (p *watcher) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// sample is one series of the answer to a query.
type sample struct{ Metric map[string]string }

// query asks for the present value of an expression.
func (p *watcher) query(ctx context.Context, expression string) ([]sample, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/v1/query?query="+url.QueryEscape(expression), http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	var body struct {
		Error string
		Data  struct{ Result []sample }
	}
	if err := json.NewDecoder(answer.Body).Decode(&body); err != nil {
		return nil, fmt.Errorf("%s: %w", answer.Status, err)
	}
	if body.Error != "" {
		return nil, fmt.Errorf("%s: %s", expression, body.Error)
	}
	return body.Data.Result, nil
}

// firing returns the alerts that fire.
func (p *watcher) firing(ctx context.Context) (alerts []string, err error) {
	found, err := p.query(ctx, `ALERTS{alertstate="firing"}`)
	for _, alert := range found {
		var labels []string
		for _, key := range []string{"instance", "server_address", "zkrecipes_lock_name", "error_type"} {
			if value := alert.Metric[key]; value != "" {
				labels = append(labels, key+"="+value)
			}
		}
		alerts = append(alerts, strings.TrimSpace(alert.Metric["alertname"]+" "+strings.Join(labels, " ")))
	}
	slices.Sort(alerts)
	return alerts, err
}

// awaitAlert waits until an alert fires, and prints all that do.
func (n *night) awaitAlert(ctx context.Context, name string) error {
	for until := time.Now().Add(patience); ; pause(ctx, 200*time.Millisecond) {
		alerts, err := n.prometheus.firing(ctx)
		if slices.ContainsFunc(alerts, func(alert string) bool { return strings.HasPrefix(alert, name) }) {
			fmt.Printf("Prometheus: firing: %s\n", strings.Join(alerts, "; "))
			return nil
		}
		if time.Now().After(until) || ctx.Err() != nil {
			return errors.Join(fmt.Errorf("%s does not fire: %q", name, alerts), err, ctx.Err())
		}
	}
}

// askBoard asks each query of the board, and fails if one has no data.
func (p *watcher) askBoard(ctx context.Context) error {
	content, err := os.ReadFile(p.board)
	if err != nil {
		return err
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(content, &board); err != nil {
		return err
	}
	asked := 0
	for _, panel := range board.Panels {
		for _, target := range panel.Targets {
			expression := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$name", ".*").Replace(target.Expr)
			found, err := p.query(ctx, expression)
			if err != nil {
				return fmt.Errorf("panel %q: %w", panel.Title, err)
			}
			if len(found) == 0 {
				return fmt.Errorf("panel %q has no data: %s", panel.Title, expression)
			}
			asked++
		}
	}
	fmt.Printf("Prometheus: each of the %d queries of the board has data\n", asked)
	return nil
}
