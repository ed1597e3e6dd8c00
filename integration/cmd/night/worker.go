package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// worker is a process of examples/worker, and its log.
type worker struct {
	id  string
	url string
	cmd *exec.Cmd

	mu     sync.Mutex // protects what is below
	lines  []string
	grown  chan struct{} // closed when there is another line
	shown  int           // lines that show has shown
	judged int           // lines that await has read
}

func (n *night) startWorker(ctx context.Context, id, servers string) (*worker, error) {
	w := &worker{id: id, grown: make(chan struct{})}
	w.cmd = exec.CommandContext(ctx, filepath.Join(n.bin, "worker"), "serve", "-id", id, "-listen", "127.0.0.1:0", "-zk", servers,
		"-db", filepath.Join(n.dir, "worker.db"), "-every", every.String(), "-work", work.String(), "-session-timeout", sessionTimeout.String())
	return w, w.start()
}

func (w *worker) start() error {
	w.cmd.Stderr = os.Stderr
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := w.cmd.Start(); err != nil {
		return err
	}
	go w.read(out) // ends with the process
	return nil
}

func (w *worker) read(log io.Reader) {
	for scanner := bufio.NewScanner(log); scanner.Scan(); {
		line := scanner.Text()
		var event struct{ Msg, URL string }
		_ = json.Unmarshal([]byte(line), &event)
		w.mu.Lock()
		w.lines = append(w.lines, line)
		if event.Msg == "serving" {
			w.url = event.URL
		}
		close(w.grown)
		w.grown = make(chan struct{})
		w.mu.Unlock()
	}
}

// await waits for the next line with this message, after those already awaited.
func (w *worker) await(ctx context.Context, msg string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		w.mu.Lock()
		for ; w.judged < len(w.lines); w.judged++ {
			if line := w.lines[w.judged]; strings.Contains(line, `"msg":"`+msg+`"`) {
				w.judged++
				w.mu.Unlock()
				return nil
			}
		}
		grown := w.grown
		w.mu.Unlock()
		select {
		case <-grown:
		case <-ctx.Done():
			return fmt.Errorf("%s does not say %q: %w", w.id, msg, context.Cause(ctx))
		}
	}
}

// forget makes await look at later lines only.
func (w *worker) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judged = len(w.lines)
}

// show prints the lines of the logs that were not shown yet, in the order of their times, with which each begins.
// Those of the single runs are left out.
func (n *night) show() {
	var lines []string
	for _, w := range n.workers {
		w.mu.Lock()
		for ; w.shown < len(w.lines); w.shown++ {
			if line := w.lines[w.shown]; !strings.Contains(line, `"msg":"run begins"`) && !strings.Contains(line, `"msg":"run recorded"`) {
				lines = append(lines, line)
			}
		}
		w.mu.Unlock()
	}
	slices.Sort(lines)
	for _, line := range lines {
		fmt.Println(line)
	}
}

var scopeLabels = regexp.MustCompile(`,?otel_scope_[a-z_]+="[^"]*"`)

// metrics prints the matching metrics of each worker, without labels about their origin.
func (n *night) metrics(ctx context.Context, pattern string) {
	want := regexp.MustCompile(pattern)
	for _, w := range n.workers {
		body, err := w.get(ctx, "/metrics")
		if err != nil {
			fmt.Printf("%s: /metrics: %v\n", w.id, err)
			continue
		}
		for line := range strings.Lines(body) {
			if !strings.HasPrefix(line, "#") && want.MatchString(line) {
				line = strings.ReplaceAll(scopeLabels.ReplaceAllString(line, ""), "{,", "{")
				fmt.Printf("%s: %s", w.id, line)
			}
		}
	}
}

// health prints what the readiness check of each worker says.
func (n *night) health(ctx context.Context) {
	for _, w := range n.workers {
		body, err := w.get(ctx, "/healthz")
		fmt.Printf("%s: /healthz: %s", w.id, body)
		if err != nil {
			fmt.Println(err)
		}
	}
}

// get returns the status, unless it is 200, and the body of an answer.
func (w *worker) get(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, w.url+path, http.NoBody)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if answer.StatusCode != http.StatusOK {
		return answer.Status + ": " + string(body), err
	}
	return string(body), err
}
