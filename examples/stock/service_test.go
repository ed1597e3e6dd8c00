package main

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func noThought(context.Context) error { return nil }

// newService has a shop with ten items, a lock that is no lock but hands out the
// tokens 33, 34, …, and a holder who does not think.
func newService(t *testing.T) *service {
	t.Helper()
	s := sqliteStore(t)
	require.NoError(t, s.reset(t.Context(), goods, 10))
	var token atomic.Int64
	token.Store(32)
	return &service{
		store: s,
		guard: func(ctx context.Context, _ string, fn func(context.Context, int64) error) error {
			return fn(ctx, token.Add(1))
		},
		think:    noThought,
		patience: time.Minute,
		log:      slog.New(slog.DiscardHandler),
	}
}

func get(t *testing.T, s *service, path string) (*http.Response, answer) {
	t.Helper()
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	res := w.Result()
	defer func() { require.NoError(t, res.Body.Close()) }()
	var a answer
	if strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
		require.NoError(t, json.NewDecoder(res.Body).Decode(&a))
	}
	return res, a
}

func TestServiceSellsUntilSoldOut(t *testing.T) {
	s := newService(t)
	for n := range 10 {
		res, a := get(t, s, "/goods-stock/G1")
		require.Equal(t, http.StatusOK, res.StatusCode)
		require.NotEmpty(t, a.Buyer)
		a.Buyer = ""
		require.Equal(t, answer{GoodsNo: goods, Result: resultSold, Token: int64(33 + n)}, a)
	}
	res, a := get(t, s, "/goods-stock/G1")
	require.Equal(t, http.StatusConflict, res.StatusCode)
	require.Equal(t, resultSoldOut, a.Result)
	requireStore(t, s.store, 0, 10)
}

// A HEAD, as of a monitor or a link preview, sells nothing.
func TestServiceSellsNothingForAHead(t *testing.T) {
	s := newService(t)
	w := httptest.NewRecorder()
	s.handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodHead, "/goods-stock/G1", nil))
	require.Equal(t, http.StatusMethodNotAllowed, w.Code)
	require.Equal(t, http.MethodGet, w.Header().Get("Allow"))
	requireStore(t, s.store, 10, 0)
}

func TestServiceLocksNothingForGoodsItHasNot(t *testing.T) {
	s := newService(t)
	s.guard = func(context.Context, string, func(context.Context, int64) error) error {
		require.Fail(t, "locked")
		return nil
	}
	_, err := s.store.db.ExecContext(t.Context(),
		`INSERT INTO goods_stock (goods_no, stock, isActive, token) VALUES ('retired', 5, FALSE, 0)`)
	require.NoError(t, err)
	for path, status := range map[string]int{
		"/goods-stock/none":                       http.StatusNotFound,
		"/goods-stock/retired":                    http.StatusNotFound,
		"/goods-stock/a%2Fb":                      http.StatusBadRequest,
		"/goods-stock/%2E%2E":                     http.StatusBadRequest,
		"/goods-stock/%00":                        http.StatusBadRequest,
		"/goods-stock/-":                          http.StatusBadRequest,
		"/goods-stock/G1%0A":                      http.StatusBadRequest,
		"/goods-stock/" + strings.Repeat("G", 65): http.StatusBadRequest,
		"/goods-stock/" + strings.Repeat("G", 64): http.StatusNotFound,
		"/goods-stock/G1'%20OR%201=1":             http.StatusBadRequest,
		"/goods-stock/":                           http.StatusNotFound,
		"/goods-stock/G1/more":                    http.StatusNotFound,
		"/goods-stock/%E2%80%AEG1?buyer=somebody": http.StatusBadRequest,
		"/goods-stock/none?buyer=somebody":        http.StatusNotFound,
		"/goods-stock/G1?buyer=some%20body":       http.StatusBadRequest,
	} {
		res, _ := get(t, s, path)
		require.Equal(t, status, res.StatusCode, path)
	}
}

func TestServiceSellsOnceToABuyerWhoAsksAgain(t *testing.T) {
	s := newService(t)
	_, first := get(t, s, "/goods-stock/G1?buyer=ann")
	res, second := get(t, s, "/goods-stock/G1?buyer=ann")
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, first, second)
	requireStore(t, s.store, 9, 1)
}

func TestServiceAsksToTryAgainWhenTheLockFails(t *testing.T) {
	s := newService(t)
	s.guard = func(context.Context, string, func(context.Context, int64) error) error {
		return errors.New("no ZooKeeper")
	}
	res, a := get(t, s, "/goods-stock/G1")
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	require.Equal(t, "1", res.Header.Get("Retry-After"))
	require.Equal(t, resultTrouble, a.Result)
	requireStore(t, s.store, 10, 0)
}

// A failed release after the sale does not undo the sale, and the buyer must hear of the sale.
func TestServiceStandsByASaleWhoseLockEndedBadly(t *testing.T) {
	s := newService(t)
	inner := s.guard
	s.guard = func(ctx context.Context, goodsNo string, fn func(context.Context, int64) error) error {
		return errors.Join(inner(ctx, goodsNo, fn), errors.New("release failed"))
	}
	res, _ := get(t, s, "/goods-stock/G1")
	require.Equal(t, http.StatusOK, res.StatusCode)
	requireStore(t, s.store, 9, 1)
}

func TestServiceLosesPatience(t *testing.T) {
	s := newService(t)
	s.patience = time.Millisecond
	s.guard = func(ctx context.Context, _ string, _ func(context.Context, int64) error) error {
		<-ctx.Done() // the lock is never granted
		return context.Cause(ctx)
	}
	res, _ := get(t, s, "/goods-stock/G1")
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
}

// pausingService pauses the first holder between its read and its write. It closes read after the read, and continues
// when resume is closed.
func pausingService(t *testing.T) (s *service, read <-chan struct{}, resume chan<- struct{}) {
	t.Helper()
	s = newService(t)
	reached, goOn := make(chan struct{}), make(chan struct{})
	var holders atomic.Int64
	s.think = func(context.Context) error {
		if holders.Add(1) == 1 {
			close(reached)
			<-goOn
		}
		return nil
	}
	return s, reached, goOn
}

// Holder 33 is paused until holder 34 has the lock and sells. The late write of 33 is refused, and its buyer gets an
// item by a repeated request.
func TestPausedHolderIsRefused(t *testing.T) {
	s, read, resume := pausingService(t)
	paused := make(chan error, 1)
	go func() { // ends once resumed; received from below
		_, err := s.sell(t.Context(), goods, "ann")
		paused <- err
	}()
	<-read

	token, err := s.sell(t.Context(), goods, "bob")
	require.NoError(t, err)
	require.Equal(t, int64(34), token)
	close(resume)
	require.ErrorIs(t, <-paused, errStale)
	requireStore(t, s.store, 9, 1)

	token, err = s.sell(t.Context(), goods, "ann")
	require.NoError(t, err)
	require.Equal(t, int64(35), token)
	requireStore(t, s.store, 8, 2)
}

// The same two holders without a lock: both sell the same item.
func TestWithoutLockThePausedOneUndoesTheOther(t *testing.T) {
	s, read, resume := pausingService(t)
	s.guard = unlocked
	paused := make(chan error, 1)
	go func() { // ends once resumed; received from below
		_, err := s.sell(t.Context(), goods, "ann")
		paused <- err
	}()
	<-read

	for _, buyer := range []string{"bob", "cid", "dot"} {
		_, err := s.sell(t.Context(), goods, buyer)
		require.NoError(t, err)
	}
	close(resume)
	require.NoError(t, <-paused)
	requireStore(t, s.store, 9, 4)
}

// Another holder claims the row during the pause of this one.
func TestStaleWriteIsReportedToTheBuyer(t *testing.T) {
	s := newService(t)
	s.think = func(ctx context.Context) error { return s.store.claim(ctx, goods, 1000) }
	res, a := get(t, s, "/goods-stock/G1")
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	require.Equal(t, resultStale, a.Result)
	require.NotEmpty(t, res.Header.Get("Retry-After"))
	requireStore(t, s.store, 10, 0)
}
