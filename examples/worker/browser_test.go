//go:build integration

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"html"
	"image/png"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// screenshot makes the picture in the README:
//
//	go test -tags integration -run Chromium ./examples/worker -args -screenshot ../../docs/worker-status.png
var screenshot = flag.String("screenshot", "", "write a picture of the status page to this PNG `file`")

// chromium runs the browser without a window, and returns its output.
func chromium(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "chromium", append([]string{
		"--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--user-data-dir=" + t.TempDir(),
	}, args...)...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	require.NoError(t, err, errs.String())
	return string(out)
}

// look is what a page looks like in a frame of some width.
type look struct {
	Title    string   `json:"title"`
	First    string   `json:"first"`
	Schedule string   `json:"schedule"`
	Token    string   `json:"token"`
	Queue    []string `json:"queue"`
	Runs     []string `json:"runs"`
	Overflow float64  `json:"overflow"` // how far anything sticks out to the right
	Beside   bool     `json:"beside"`   // whether the runs are beside the queue
	Dark     bool     `json:"dark"`
	Contrast float64  `json:"contrast"` // the least of any text with its background
	Smallest float64  `json:"smallest"` // font size
}

// frame is a page that measures the status page in a frame of a given width, because a window of the browser can't be
// as narrow as a phone.
const frame = `<!doctype html>
<style>:root { color-scheme: light dark } iframe { width: %dpx; height: 900px; border: 0 }</style>
<iframe src="/?refresh=0"></iframe>
<pre></pre>
<script>
const iframe = document.querySelector("iframe")
iframe.onload = () => {
  const view = iframe.contentWindow, page = iframe.contentDocument
  const text = e => e.innerText.trim().replace(/\s+/g, " ")
  const all = s => [...page.querySelectorAll(s)]
  const rgb = c => c.match(/[\d.]+/g).map(Number)
  const luminance = c => rgb(c).slice(0, 3).map(v => v / 255)
    .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0)
  const ground = e => { const c = view.getComputedStyle(e).backgroundColor; return rgb(c)[3] === 0 ? ground(e.parentElement) : c }
  const contrast = e => {
    const [a, b] = [luminance(view.getComputedStyle(e).color), luminance(ground(e))].sort((x, y) => y - x)
    return (a + .05) / (b + .05)
  }
  const texts = all("body *").filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim()))
  const sections = all(".columns section").map(e => e.getBoundingClientRect())
  document.querySelector("pre").textContent = JSON.stringify({
    title: page.title, first: text(page.querySelector("h1")), schedule: text(page.querySelector("#schedule")), token: text(page.querySelector("#token")),
    queue: all("ol li").map(text), runs: all("tbody tr").map(text),
    overflow: Math.max(...all("body *").map(e => e.getBoundingClientRect().right)) - page.documentElement.clientWidth,
    beside: sections[1].left >= sections[0].right, dark: luminance(ground(page.body)) < .5,
    contrast: Math.min(...texts.map(contrast)), smallest: Math.min(...texts.map(e => parseFloat(view.getComputedStyle(e).fontSize))),
  })
}
</script>`

// lookAt looks at a status page through a frame.
func lookAt(t *testing.T, page string, width int, args ...string) (l look) {
	t.Helper()
	target, err := url.Parse(page)
	require.NoError(t, err)
	transport := new(http.Transport)
	defer transport.CloseIdleConnections()
	mux := http.NewServeMux()
	mux.Handle("/", &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }, Transport: transport,
	})
	mux.HandleFunc("/frame", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintf(w, frame, width) })
	server := httptest.NewServer(mux)
	defer server.Close()

	dom := chromium(t, append(args, "--dump-dom", server.URL+"/frame")...)
	measured := regexp.MustCompile(`<pre>(.*)</pre>`).FindStringSubmatch(dom)
	require.Len(t, measured, 2, dom)
	require.NoError(t, json.Unmarshal([]byte(html.UnescapeString(measured[1])), &l), measured[1])
	t.Logf("%d px: %+v", width, l)
	return l
}

const (
	phone   = 390
	desktop = 1280
)

func TestStatusPageInChromium(t *testing.T) {
	tr, _ := newTour(t, embedded(t), longSession)
	require.NoError(t, tr.awaitRuns(t.Context()))
	token := fmt.Sprint(tr.token)
	for _, tt := range []struct {
		name   string
		width  int
		args   []string
		beside bool
		dark   bool
	}{
		{"phone", phone, nil, false, false},
		{"desktop", desktop, []string{"--window-size=1400,1000"}, true, false},
		{"phone at night", phone, []string{"--force-dark-mode"}, false, true},
		{"desktop at night", desktop, []string{"--window-size=1400,1000", "--force-dark-mode"}, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := lookAt(t, tr.workers["bob"].url, tt.width, tt.args...)
			require.Equal(t, tr.leader+" is first in the queue", l.Title)
			require.Equal(t, tr.leader+" is first in the queue", l.First)
			require.Regexp(t, `^Last run: number \d+, \ds ago, done\. Run \d+ is due (now|in \ds)\. The job runs every 400ms\.$`, l.Schedule)
			require.Equal(t, token, l.Token)
			require.ElementsMatch(t, []string{"ann first", "bob this one", "cid"}, l.Queue)
			require.Equal(t, tr.leader+" first", l.Queue[0])
			require.GreaterOrEqual(t, len(l.Runs), runsPerTerm)
			for _, r := range l.Runs {
				require.Regexp(t, `^\d+ `+tr.leader+` `+token+` \ds ago \d+ms done$`, r)
			}
			require.Equal(t, tt.beside, l.Beside)
			require.Equal(t, tt.dark, l.Dark)
			require.LessOrEqual(t, l.Overflow, 0.0)
			require.GreaterOrEqual(t, l.Contrast, 4.5, "WCAG 2.2, AA")
			require.GreaterOrEqual(t, l.Smallest, 12.0)
		})
	}
}

// Names may be as long as the table of runs takes them.
func TestLongNamesInChromium(t *testing.T) {
	p := thePage()
	long := strings.Repeat("w", maxID)
	q, err := p.queue(t.Context())
	require.NoError(t, err)
	q[0].ID, q[0].Token = long, 1<<63-1
	runs, err := p.runs(t.Context(), 1)
	require.NoError(t, err)
	runs[0].Leader, runs[0].Token, runs[0].Outcome = long, 1<<63-1, outcomeStopped
	p.queue = func(context.Context) ([]recipes.Participant, error) { return q, nil }
	p.runs = func(context.Context, int) ([]runRecord, error) { return runs, nil }
	server := httptest.NewServer(p.handler())
	defer server.Close()

	l := lookAt(t, server.URL, phone)
	require.Equal(t, long+" is first in the queue", l.First)
	require.LessOrEqual(t, l.Overflow, 0.0)
}

// The picture shows three workers, one of which was stopped in the middle of a run.
func TestScreenshotInChromium(t *testing.T) {
	ctx := t.Context()
	tr, _ := newTourOf(t, embedded(t), shortSession, 2*time.Second, "worker-1", "worker-2", "worker-3")
	require.NoError(t, tr.awaitRuns(ctx))
	_, err := tr.until(ctx, func(e event) bool { return e.Msg == saysBegins })
	require.NoError(t, err)
	victim := tr.leader
	require.NoError(t, tr.takeAway(ctx, syscall.SIGTERM, "test"))
	require.NoError(t, tr.start(ctx, victim))
	require.NoError(t, tr.awaitRuns(ctx))

	file := filepath.Join(t.TempDir(), "page.png")
	if *screenshot != "" {
		file, err = filepath.Abs(*screenshot)
		require.NoError(t, err)
	}
	chromium(t, "--window-size=880,660", "--screenshot="+file, tr.workers[tr.leader].url)
	picture, err := os.Open(file)
	require.NoError(t, err)
	defer func() { require.NoError(t, picture.Close()) }()
	cfg, err := png.DecodeConfig(picture)
	require.NoError(t, err)
	require.Equal(t, []int{880, 660}, []int{cfg.Width, cfg.Height})
}
