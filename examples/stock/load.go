package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/errgroup"
)

// load is a crowd of buyers, each of whom wants one item, or one item each of several goods.
type load struct {
	urls     []string // of the services, taken in turn
	goods    []string // wanted by each buyer, together
	buyers   int
	atOnce   int    // 0 for all
	answered func() // called for each buyer who is done, by several goroutines
}

// tally counts the answers to the buyers.
type tally struct {
	buyers     int
	sold       int   // answers "sold"
	refused    int   // answers "sold out"
	unanswered int   // buyers who gave up
	firstErr   error // why the first of them did
	stale      int   // answers about a write that was refused for its token
	retries    int   // requests sent again
	elapsed    time.Duration
	waits      *hdrhistogram.Histogram // µs from a buyer's first request to the final answer
}

// run lets all buyers in, and returns when each has an answer or gives up.
func (l *load) run(ctx context.Context) tally {
	atOnce := l.buyers
	if l.atOnce > 0 {
		atOnce = min(atOnce, l.atOnce)
	}
	// Each buyer at the counter has a connection, kept for the next one.
	transport := &http.Transport{MaxIdleConnsPerHost: atOnce}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}

	var (
		mu sync.Mutex // protects t
		t  = tally{buyers: l.buyers, waits: hdrhistogram.New(1, time.Hour.Microseconds(), 3)}
	)
	began := time.Now()
	var crowd errgroup.Group
	crowd.SetLimit(atOnce)
	for n := range l.buyers {
		crowd.Go(func() error {
			arrived := time.Now()
			v := l.visit(ctx, client, n)
			wait := time.Since(arrived)

			mu.Lock()
			t.add(v, wait)
			mu.Unlock()
			l.answered()
			return nil
		})
	}
	_ = crowd.Wait() // each visit records its own error
	t.elapsed = time.Since(began)
	return t
}

// visit is the result of one buyer.
type visit struct {
	status int   // of the final answer
	err    error // why there was none
	stale  int
	tries  int
}

func (t *tally) add(v visit, wait time.Duration) {
	t.stale += v.stale
	t.retries += v.tries - 1
	switch {
	case v.err != nil:
		t.unanswered++
		if t.firstErr == nil {
			t.firstErr = v.err
		}
		return
	case v.status == http.StatusOK:
		t.sold++
	default:
		t.refused++
	}
	// Fails only for waits beyond its range, and patience ends earlier.
	_ = t.waits.RecordValue(max(1, wait.Microseconds()))
}

// longestVisit bounds how long a buyer keeps asking.
const longestVisit = 5 * time.Minute

// visit asks for one item, until the answer is "sold" or "sold out" or longestVisit is over. The buyer's name makes
// repetition safe: a purchase whose answer was lost is not made twice.
func (l *load) visit(ctx context.Context, client *http.Client, n int) (v visit) {
	// The retry looks at the clock between two requests alone, and a service
	// that is frozen never answers.
	ctx, cancel := context.WithTimeout(ctx, longestVisit)
	defer cancel()
	query := url.Values{"buyer": {fmt.Sprintf("buyer-%04d", n)}}.Encode()
	ask := func() (int, error) {
		// Ask the next service in turn, which may be up if this one is down.
		service := l.urls[(n+v.tries)%len(l.urls)]
		v.tries++
		req, err := http.NewRequestWithContext(ctx, http.MethodGet,
			service+"/goods-stock/"+url.PathEscape(l.basketOf(n))+"?"+query, nil)
		if err != nil {
			return 0, backoff.Permanent(err)
		}
		res, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		defer func() { _ = res.Body.Close() }()
		var a answer
		if err := json.NewDecoder(res.Body).Decode(&a); err != nil {
			return 0, fmt.Errorf("answer %s: %w", res.Status, err)
		}
		if a.Result == resultStale {
			v.stale++
		}
		switch res.StatusCode {
		case http.StatusOK, http.StatusConflict:
			return res.StatusCode, nil
		case http.StatusServiceUnavailable:
			return 0, retryAfter(res)
		default:
			return 0, backoff.Permanent(fmt.Errorf("answer %s: %s", res.Status, a.Result))
		}
	}
	v.status, v.err = backoff.Retry(ctx, ask, backoff.WithMaxElapsedTime(longestVisit))
	return v
}

// basketOf returns the goods of a buyer. Every second buyer names them in the opposite order.
func (l *load) basketOf(n int) string {
	goods := slices.Clone(l.goods)
	if n%2 == 1 {
		slices.Reverse(goods)
	}
	return strings.Join(goods, ",")
}

// retryAfter is the error that makes backoff wait as long as the service asks.
func retryAfter(res *http.Response) error {
	seconds, err := strconv.Atoi(res.Header.Get("Retry-After"))
	if err != nil {
		seconds = 1
	}
	return backoff.RetryAfter(seconds)
}
