package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

var (
	// errDeclined is returned by authorize if the payment provider declines. It is final.
	errDeclined = errors.New("payment declined")

	// errBusy is returned by buy if it did not get the lock. Nothing was begun.
	errBusy = errors.New("busy")
)

// keyPattern is what an idempotency key looks like.
var keyPattern = regexp.MustCompile(`^[A-Za-z0-9-]{1,64}$`)

// shop sells goods. Any number of shops, in any number of processes, may share a database.
type shop struct {
	store     *store
	client    *recipes.Client
	lockWait  time.Duration
	authorize func(ctx context.Context, key string) error
	log       *slog.Logger
}

// purchase handles POST /goods/{id}/purchases. The header Idempotency-Key names the purchase. A client that got no
// answer, or 503 or 504, repeats the request with the same key, and never buys twice.
func (s *shop) purchase(w http.ResponseWriter, r *http.Request) {
	goods, key := r.PathValue("id"), r.Header.Get("Idempotency-Key")
	if !keyPattern.MatchString(key) {
		http.Error(w, "the header Idempotency-Key is missing or invalid", http.StatusBadRequest)
		return
	}
	// The purchase continues if the client hangs up. It has its own time limit.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), workLimit)
	defer cancel()
	token, err := s.buy(ctx, goods, key)
	if err != nil {
		status := statusOf(err)
		if status >= http.StatusInternalServerError {
			s.log.WarnContext(ctx, "no purchase", "goods", goods, "key", key, "status", status, "err", err)
		}
		if status == http.StatusServiceUnavailable {
			w.Header().Set("Retry-After", "1")
		}
		http.Error(w, http.StatusText(status), status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_ = json.NewEncoder(w).Encode(map[string]any{"goods": goods, "key": key, "token": token})
}

// buy sells one item under the lock of the goods, and returns the fencing token of the purchase.
func (s *shop) buy(ctx context.Context, goods, key string) (token int64, err error) {
	// Query the database first, so that a client with invented names does not create znodes.
	if _, err := s.store.read(ctx, goods); err != nil {
		return 0, err
	}
	lock, err := mutex.New(s.client, "/shop/goods/"+goods, mutex.WithName("goods"))
	if err != nil {
		return 0, err
	}
	began, recorded := false, false
	err = lock.DoWithin(ctx, s.lockWait, func(ctx context.Context, lease *recipes.Lease) error {
		began = true
		var err error
		token, err = s.sell(ctx, goods, key, lease.FencingToken()) // ctx ends when the lock is lost
		recorded = err == nil
		return err
	})
	switch {
	case recorded:
		return token, nil // the purchase is in the database, even if the lock was lost right after
	case !began && errors.Is(err, recipes.ErrNotAcquired):
		return 0, fmt.Errorf("%w: %w", errBusy, err)
	default: // even if authorize failed to acquire a lock of its own
		return 0, err
	}
}

// sell reads the stock, authorizes the payment, and records the purchase. Its caller holds the lock.
//
// One SQL transaction could do the rest, but the payment is outside of the database. Without the lock, two buyers could
// pay for the last item.
func (s *shop) sell(ctx context.Context, goods, key string, token int64) (int64, error) {
	if err := s.store.claim(ctx, goods, token); err != nil {
		return 0, err
	}
	if earlier, ok, err := s.store.receipt(ctx, key); err != nil || ok {
		return earlier, err // a repeated request
	}
	stock, err := s.store.read(ctx, goods)
	if err != nil {
		return 0, err
	}
	if stock < 1 {
		return 0, errSoldOut
	}
	if err := s.authorize(ctx, key); err != nil {
		return 0, err
	}
	return token, s.store.record(ctx, goods, key, token, stock-1)
}

// statusOf returns the status code for an error of buy.
func statusOf(err error) int {
	switch {
	case errors.Is(err, errUnknownGoods):
		return http.StatusNotFound
	case errors.Is(err, errSoldOut):
		return http.StatusConflict
	case errors.Is(err, errDeclined):
		return http.StatusPaymentRequired
	case errors.Is(err, errBusy), errors.Is(err, errStale):
		return http.StatusServiceUnavailable // nothing was written: try again
	case errors.Is(err, recipes.ErrSessionLost), errors.Is(err, recipes.ErrNodeDeleted),
		errors.Is(err, recipes.ErrClosed), errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout // interrupted; a repeated request with the same key finds out
	default:
		return http.StatusInternalServerError
	}
}

// ready answers a readiness probe. Without ZooKeeper the service is degraded, not down, as docs/http.md explains.
func (s *shop) ready(w http.ResponseWriter, _ *http.Request) {
	h := s.client.Health()
	isBrief := h.State == recipes.Suspended && time.Since(h.Since) < h.SessionTimeout/3
	if h.State != recipes.Connected && !isBrief {
		w.Header().Set("X-Degraded", "purchases")
	}
	_, _ = fmt.Fprintln(w, h.State)
}
