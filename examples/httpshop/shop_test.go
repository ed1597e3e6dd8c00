package main

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func accept(context.Context, string) error { return nil }

// newShop returns a shop of its own process, as far as ZooKeeper is concerned. Shops with the same file share the goods.
func newShop(t *testing.T, server *zktest.Server, file string, authorize func(context.Context, string) error) *shop {
	t.Helper()
	db, err := openStore(t.Context(), file)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return &shop{
		store: db, client: zkclient.Connect(t, server), lockWait: time.Minute,
		authorize: authorize, log: slog.New(slog.DiscardHandler),
	}
}

func newFile(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "shop.db")
}

// post sends a purchase to the handler of s.
func post(t *testing.T, s *shop, goods, key string) *httptest.ResponseRecorder {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /goods/{id}/purchases", s.purchase)
	request := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/goods/"+goods+"/purchases", nil)
	request.Header.Set("Idempotency-Key", key)
	answer := httptest.NewRecorder()
	mux.ServeHTTP(answer, request)
	return answer
}

func stockOf(t *testing.T, s *shop) int {
	t.Helper()
	stock, err := s.store.read(t.Context(), "1001")
	require.NoError(t, err)
	return stock
}

func setStock(t *testing.T, s *shop, stock int) {
	t.Helper()
	_, err := s.store.ExecContext(t.Context(), `UPDATE goods SET stock = ?`, stock)
	require.NoError(t, err)
}

func TestRepeatedPurchaseBuysOnce(t *testing.T) {
	server := zktest.NewServer(t)
	s := newShop(t, server, newFile(t), accept)
	first, again := post(t, s, "1001", "order-1"), post(t, s, "1001", "order-1")
	require.Equal(t, http.StatusCreated, first.Code)
	require.Equal(t, http.StatusCreated, again.Code)
	require.Equal(t, first.Body.String(), again.Body.String())
	require.Equal(t, 99, stockOf(t, s))
	server.RequireIdle(t) // no lock is left
}

// An authorization may have been given, so the answer must not be that the purchase was not begun.
func TestBusyLockOfThePaymentIsNotAnswered503(t *testing.T) {
	server := zktest.NewServer(t)
	payments, err := mutex.New(zkclient.Connect(t, server), "/payments")
	require.NoError(t, err)
	lease, err := payments.Acquire(t.Context())
	require.NoError(t, err)
	s := newShop(t, server, newFile(t), func(ctx context.Context, _ string) error {
		_, err := payments.TryAcquire(ctx)
		return err
	})
	require.Equal(t, http.StatusInternalServerError, post(t, s, "1001", "order-1").Code)
	require.NoError(t, lease.Release())
}

func TestRefusals(t *testing.T) {
	server := zktest.NewServer(t)
	s := newShop(t, server, newFile(t), func(_ context.Context, key string) error {
		if key == "no-money" {
			return errDeclined
		}
		return nil
	})
	require.Equal(t, http.StatusBadRequest, post(t, s, "1001", "").Code)
	require.Equal(t, http.StatusNotFound, post(t, s, "unknown", "order-1").Code)
	require.Equal(t, http.StatusPaymentRequired, post(t, s, "1001", "no-money").Code)
	setStock(t, s, 0)
	require.Equal(t, http.StatusConflict, post(t, s, "1001", "order-1").Code)
}

func TestTwoProcessesOversellNothing(t *testing.T) {
	server, file := zktest.NewServer(t), newFile(t)
	var authorized atomic.Int32
	count := func(context.Context, string) error {
		authorized.Add(1)
		return nil
	}
	shops := []*shop{newShop(t, server, file, count), newShop(t, server, file, count)}
	setStock(t, shops[0], 5)
	codes := make([]int, 20)
	var buyers sync.WaitGroup
	for i := range codes {
		buyers.Go(func() {
			codes[i] = http.StatusServiceUnavailable
			for codes[i] == http.StatusServiceUnavailable { // busy: again
				codes[i] = post(t, shops[i%2], "1001", "order-"+strconv.Itoa(i)).Code
			}
		})
	}
	buyers.Wait()
	sold := 0
	for _, code := range codes {
		if code == http.StatusCreated {
			sold++
			continue
		}
		require.Equal(t, http.StatusConflict, code)
	}
	require.Equal(t, 5, sold)
	require.EqualValues(t, 5, authorized.Load(), "nobody pays in vain")
	require.Zero(t, stockOf(t, shops[0]))
}

func TestBusyGoodsAreAnswered503(t *testing.T) {
	server := zktest.NewServer(t)
	s := newShop(t, server, newFile(t), accept)
	other, err := mutex.New(zkclient.Connect(t, server), "/shop/goods/1001")
	require.NoError(t, err)
	lease, err := other.Acquire(t.Context())
	require.NoError(t, err)
	s.lockWait = 50 * time.Millisecond
	answer := post(t, s, "1001", "order-1")
	require.Equal(t, http.StatusServiceUnavailable, answer.Code)
	require.Equal(t, "1", answer.Header().Get("Retry-After"))
	require.NoError(t, lease.Release())
	s.lockWait = time.Minute
	require.Equal(t, http.StatusCreated, post(t, s, "1001", "order-1").Code)
}

func TestLostLockStopsThePurchase(t *testing.T) {
	server := zktest.NewServer(t)
	var s *shop
	var once sync.Once
	s = newShop(t, server, newFile(t), func(ctx context.Context, _ string) error {
		once.Do(func() {
			server.Expire(s.client.Conn().SessionID())
			<-ctx.Done()
		})
		return ctx.Err()
	})
	require.Equal(t, http.StatusGatewayTimeout, post(t, s, "1001", "order-1").Code)
	require.Equal(t, 100, stockOf(t, s), "nothing is written after the loss")
	require.Equal(t, http.StatusCreated, post(t, s, "1001", "order-1").Code, "the same request works with the next session")
	require.Equal(t, 99, stockOf(t, s))
}

// A process paused in the middle of its purchase can't know that it lost the lock. The database decides by the token.
func TestPausedHolderWritesNothing(t *testing.T) {
	server := zktest.NewServer(t)
	var s *shop
	s = newShop(t, server, newFile(t), func(ctx context.Context, _ string) error {
		return s.store.claim(ctx, "1001", 1<<62) // by a later holder, during the pause
	})
	require.Equal(t, http.StatusServiceUnavailable, post(t, s, "1001", "order-1").Code)
	require.Equal(t, 100, stockOf(t, s))
}

func TestReadinessReportsDegraded(t *testing.T) {
	server := zktest.NewServer(t)
	s := newShop(t, server, newFile(t), accept)
	probe := func() *httptest.ResponseRecorder {
		answer := httptest.NewRecorder()
		s.ready(answer, nil)
		return answer
	}
	require.Empty(t, probe().Header().Get("X-Degraded"))
	require.NoError(t, s.client.Close())
	require.Equal(t, http.StatusOK, probe().Code)
	require.Equal(t, "purchases", probe().Header().Get("X-Degraded"))
}

func TestRunServesUntilItsContextEnds(t *testing.T) {
	server := zktest.NewServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	address := make(firstLine, 1)
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, []string{"-listen", "127.0.0.1:0", "-zk", server.Addr(), "-db", newFile(t)}, address)
	}()
	var url string
	select {
	case line := <-address:
		url = strings.TrimPrefix(line, "serving on ")
	case err := <-ended:
		require.NoError(t, err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/goods/1001/purchases", nil)
	require.NoError(t, err)
	request.Header.Set("Idempotency-Key", "order-1")
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, http.StatusCreated, answer.StatusCode)
	http.DefaultClient.CloseIdleConnections()
	cancel()
	require.NoError(t, <-ended)
	server.RequireIdle(t)
}

// firstLine captures the first line written to it.
type firstLine chan string

func (l firstLine) Write(p []byte) (int, error) {
	select {
	case l <- string(bytes.TrimSpace(p)):
	default:
	}
	return len(p), nil
}
