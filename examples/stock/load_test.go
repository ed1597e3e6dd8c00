package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// shop answers the n-th request, counted from 0, with what say returns.
func shop(t *testing.T, say func(n int, r *http.Request) (status int, result string)) string {
	t.Helper()
	var requests atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, result := say(int(requests.Add(1)-1), r)
		w.Header().Set("Retry-After", "0")
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(answer{Result: result})
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestLoadAsksForEveryBuyerOnce(t *testing.T) {
	var buyers sync.Map
	say := func(n int, r *http.Request) (int, string) {
		_, twice := buyers.LoadOrStore(r.URL.Query().Get("buyer"), true)
		if twice || r.URL.Path != "/goods-stock/G1" {
			return http.StatusBadRequest, resultInvalid
		}
		if n < 20 {
			return http.StatusOK, resultSold
		}
		return http.StatusConflict, resultSoldOut
	}
	var answered atomic.Int64
	l := &load{urls: []string{shop(t, say)}, goods: []string{goods}, buyers: 50, atOnce: 8, answered: func() { answered.Add(1) }}
	got := l.run(t.Context())

	require.NoError(t, got.firstErr)
	require.Equal(t, []int{50, 20, 30, 0, 0, 0}, []int{got.buyers, got.sold, got.refused, got.unanswered, got.stale, got.retries})
	require.Equal(t, int64(50), answered.Load())
	require.Equal(t, int64(50), got.waits.TotalCount())
	require.Positive(t, got.elapsed)
}

// The same buyer asks the next service after a 503 or a connection that breaks.
func TestLoadTriesAgain(t *testing.T) {
	stale := shop(t, func(int, *http.Request) (int, string) { return http.StatusServiceUnavailable, resultStale })
	broken := shop(t, func(int, *http.Request) (int, string) { panic(http.ErrAbortHandler) })
	open := shop(t, func(_ int, r *http.Request) (int, string) {
		if got := r.URL.Query().Get("buyer"); got != "buyer-0000" {
			return http.StatusBadRequest, fmt.Sprint("another buyer: ", got)
		}
		return http.StatusOK, resultSold
	})
	l := &load{urls: []string{stale, broken, open}, goods: []string{goods}, buyers: 1, answered: func() {}}
	got := l.run(t.Context())

	require.NoError(t, got.firstErr)
	require.Equal(t, []int{1, 0, 0, 1, 2}, []int{got.sold, got.refused, got.unanswered, got.stale, got.retries})
}

func TestLoadGivesUpOnOtherAnswers(t *testing.T) {
	l := &load{
		urls:  []string{shop(t, func(int, *http.Request) (int, string) { return http.StatusNotFound, resultUnknown })},
		goods: []string{goods}, buyers: 3, answered: func() {},
	}
	got := l.run(t.Context())
	require.Equal(t, 3, got.unanswered)
	require.EqualError(t, got.firstErr, "answer 404 Not Found: unknown goods")
}

// silent is the line to a service that does not answer.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A buyer gives up a service that never answers.
func TestVisitToASilentService(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &load{urls: []string{"http://service"}, goods: []string{goods}}
		began := time.Now()
		v := l.visit(t.Context(), &http.Client{Transport: silent{}}, 0)
		require.ErrorIs(t, v.err, context.DeadlineExceeded)
		require.Equal(t, longestVisit, time.Since(began))
	})
}
