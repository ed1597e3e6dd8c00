//go:build integration

package main

import (
	"encoding/json"
	"fmt"
	"html"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// picturesPage measures the texts of SVG pictures, one after the other. A text's background is the last rectangle drawn before the text and
// around its center.
const picturesPage = `<!doctype html>
<style>:root { color-scheme: light dark } iframe { width: 800px; height: 900px; border: 0 }</style>
<iframe></iframe>
<pre></pre>
<script>
const iframe = document.querySelector("iframe"), names = %s, pictures = []
iframe.onload = () => {
  const view = iframe.contentWindow, svg = iframe.contentDocument.documentElement
  const rgb = c => c.match(/[\d.]+/g).map(Number)
  const luminance = c => rgb(c).slice(0, 3).map(v => v / 255)
    .map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0)
  const fill = e => view.getComputedStyle(e).fill
  const contrast = (a, b) => { const [x, y] = [luminance(a), luminance(b)].sort((m, n) => n - m); return (x + .05) / (y + .05) }
  const box = e => e.getBoundingClientRect()
  const center = b => [(b.left + b.right) / 2, (b.top + b.bottom) / 2]
  const around = (r, [x, y]) => r.left <= x && x <= r.right && r.top <= y && y <= r.bottom
  const texts = [...svg.querySelectorAll("text")], all = [...svg.querySelectorAll("rect, text")]
  const ground = e => fill(all.slice(0, all.indexOf(e)).filter(r => r.tagName === "rect" && around(box(r), center(box(e)))).at(-1))
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3
  const page = box(svg)
  pictures.push({
    name: names[pictures.length], texts: texts.length, dark: luminance(fill(svg.querySelector("rect"))) < .5,
    contrast: Math.min(...texts.map(e => contrast(fill(e), ground(e)))),
    outside: texts.filter(e => box(e).left < page.left || box(e).right > page.right || box(e).bottom > page.bottom).map(e => e.textContent),
    overlaps: texts.flatMap((a, i) => texts.slice(i + 1).filter(b => meet(box(a), box(b))).map(b => a.textContent + " / " + b.textContent)),
  })
  document.querySelector("pre").textContent = JSON.stringify(pictures)
  if (pictures.length < names.length) iframe.src = names[pictures.length]
}
iframe.src = names[0]
</script>`

// seen describes an SVG picture as the browser draws it.
type seen struct {
	Name     string   `json:"name"`
	Texts    int      `json:"texts"`
	Dark     bool     `json:"dark"`
	Contrast float64  `json:"contrast"` // the least of any text with its background
	Outside  []string `json:"outside"`  // texts that leave the picture
	Overlaps []string `json:"overlaps"` // pairs of texts on top of each other
}

// TestDocumentationPicturesInChromium requires that each text of the documentation's pictures can be read, by day and at night.
func TestDocumentationPicturesInChromium(t *testing.T) {
	const docs = "../../docs/"
	var names []string
	for _, pattern := range []string{"pictures/*.svg", "evidence/performance/*.svg"} {
		files, err := filepath.Glob(docs + pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			names = append(names, "/"+strings.TrimPrefix(filepath.ToSlash(file), docs))
		}
	}
	list, err := json.Marshal(names)
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServer(http.Dir(docs)))
	mux.HandleFunc("/measure", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintf(w, picturesPage, list) })
	server := httptest.NewServer(mux)
	defer server.Close()

	for name, args := range map[string][]string{"day": nil, "night": {"--force-dark-mode"}} {
		t.Run(name, func(t *testing.T) {
			dom := chromium(t, append(args, "--virtual-time-budget=10000", "--dump-dom", server.URL+"/measure")...)
			measured := regexp.MustCompile(`<pre>(.*)</pre>`).FindStringSubmatch(dom)
			require.Len(t, measured, 2, dom)
			var pictures []seen
			require.NoError(t, json.Unmarshal([]byte(html.UnescapeString(measured[1])), &pictures), measured[1])
			require.Len(t, pictures, len(names))
			for _, p := range pictures {
				require.Positive(t, p.Texts, p.Name)
				require.Empty(t, p.Outside, p.Name)
				require.Empty(t, p.Overlaps, p.Name)
				require.GreaterOrEqual(t, p.Contrast, 4.5, "%s: WCAG 2.2, AA", p.Name)
				require.Equal(t, name == "night", p.Dark, p.Name)
			}
		})
	}
}
