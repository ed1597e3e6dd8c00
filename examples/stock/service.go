package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// name matches valid goods numbers and buyers. A goods number becomes a segment of a znode path, so it must contain
// nothing with a meaning in paths.
var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// A guard runs fn while it holds the lock of goodsNo, and passes the fencing token of that hold. It returns fn's
// error, joined with its own.
type guard func(ctx context.Context, goodsNo string, fn func(ctx context.Context, token int64) error) error

func lockPath(goodsNo string) string { return "/stock/locks/" + goodsNo }

// locked is the guard to use: one InterProcessMutex for each goods number, so
// that buyers of different goods never wait for each other.
func locked(client *recipes.Client) guard {
	return func(ctx context.Context, goodsNo string, fn func(context.Context, int64) error) error {
		m, err := mutex.New(client, lockPath(goodsNo))
		if err != nil {
			return err
		}
		// fn gets the lease's context. It ends when the lock is lost, and cancels the SQL statements of a holder that
		// may no longer be one.
		return m.Do(ctx, func(ctx context.Context, lease *recipes.Lease) error {
			return fn(ctx, lease.FencingToken())
		})
	}
}

// lockedInCohort is locked for crowds: all buyers of goodsNo at this service share one place in the queue, and
// pass the lock on among themselves.
//
// Successive holders inside a cohort share a token. So a write must end before the next holder gets the lock: it is
// cancelled only when the lock is lost, which changes the token, and not when the buyer's patience ends. The patience
// bounds the wait for the lock.
func lockedInCohort(client *recipes.Client) guard {
	return func(ctx context.Context, goodsNo string, fn func(context.Context, int64) error) error {
		m, err := mutex.New(client, lockPath(goodsNo), mutex.WithCohort(mutex.Cohort{}))
		if err != nil {
			return err
		}
		lease, err := m.Acquire(ctx)
		if err != nil {
			return err
		}
		err = fn(lease.Context(), lease.FencingToken()) //nolint:contextcheck // has the values of ctx, and ends with the lease alone
		return errors.Join(err, lease.Release())
	}
}

// unlocked is the guard to be warned of. With the same token for everyone, the
// checks in the store let every write through.
func unlocked(ctx context.Context, _ string, fn func(context.Context, int64) error) error {
	return fn(ctx, 0)
}

// service sells goods over HTTP. Any number of services, in any number of processes, may share one store.
type service struct {
	store       *store
	guard       guard
	basketGuard basketGuard
	think       func(context.Context) error // between reading the stock and writing it
	patience    time.Duration               // for one purchase
	log         *slog.Logger
}

// The possible results of a purchase.
const (
	resultSold    = "sold"
	resultSoldOut = "sold out"
	resultBought  = "partly sold to this buyer"
	resultUnknown = "unknown goods"
	resultInvalid = "invalid goods number or buyer"
	resultStale   = "stale write refused"
	resultTrouble = "try again"
)

// answer is the body of every response.
type answer struct {
	GoodsNo string `json:"goodsNo"`
	Buyer   string `json:"buyer"`
	Result  string `json:"result"`
	Token   int64  `json:"token,omitempty"` // of the lock the item was sold under
}

func (s *service) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /goods-stock/{goodsNo}", s.serveGoodsStock)
	mux.HandleFunc("HEAD /goods-stock/{goodsNo}", refuseHead) // which a GET pattern takes, too
	return mux
}

// refuseHead answers a HEAD, which must not sell.
func refuseHead(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Allow", http.MethodGet)
	w.WriteHeader(http.StatusMethodNotAllowed)
}

// serveGoodsStock answers 200 for one item sold, 409 when sold out, 404 for unknown or inactive goods, 400 for
// invalid names, and 503 with Retry-After if the purchase took place or not. With commas between several goods numbers,
// it sells one item of each, or none.
//
// A repeated request with the same ?buyer= is safe. The buyer of an item gets the same answer again, and no second
// item.
func (s *service) serveGoodsStock(w http.ResponseWriter, r *http.Request) {
	a := answer{GoodsNo: r.PathValue("goodsNo"), Buyer: r.URL.Query().Get("buyer")}
	if a.Buyer == "" {
		a.Buyer = rand.Text()
	}
	goods := strings.Split(a.GoodsNo, ",")
	if !isBasket(goods) || !name.MatchString(a.Buyer) {
		a.Result = resultInvalid
		reply(w, http.StatusBadRequest, a)
		return
	}

	ctx, cancel := context.WithTimeout(r.Context(), s.patience)
	defer cancel()
	sell := s.sell
	if len(goods) > 1 {
		sell = func(ctx context.Context, _, buyer string) (int64, error) { return s.sellBasket(ctx, goods, buyer) }
	}
	token, err := sell(ctx, a.GoodsNo, a.Buyer)
	switch {
	case err == nil:
		a.Result, a.Token = resultSold, token
		reply(w, http.StatusOK, a)
	case errors.Is(err, errSoldOut):
		a.Result = resultSoldOut
		reply(w, http.StatusConflict, a)
	case errors.Is(err, errBought):
		a.Result = resultBought
		reply(w, http.StatusConflict, a)
	case errors.Is(err, errUnknownGoods):
		a.Result = resultUnknown
		reply(w, http.StatusNotFound, a)
	default:
		a.Result = resultTrouble
		if errors.Is(err, errStale) {
			a.Result = resultStale
		}
		s.log.InfoContext(ctx, "no sale", "goods", a.GoodsNo, "buyer", a.Buyer, "err", err)
		w.Header().Set("Retry-After", "1")
		reply(w, http.StatusServiceUnavailable, a)
	}
}

// sell takes one item off the stock of goodsNo for buyer, and returns the fencing token of the sale.
//
// The claim of the row precedes the read. The lock separates buyers as long as its holder notices a loss in time. A
// process paused in between, by the machine or the garbage collector, can't notice. Meanwhile its successor claims
// the row with a higher token, and the late write of the paused process fails with errStale.
//
// Stock never rises here, so a service that read 0 could refuse buyers without the lock. It does not, so that each
// buyer exercises the lock.
func (s *service) sell(ctx context.Context, goodsNo, buyer string) (token int64, err error) {
	// Invented names must not create znodes.
	if _, err := s.store.read(ctx, goodsNo); err != nil {
		return 0, err
	}

	decided := false
	err = s.guard(ctx, goodsNo, func(ctx context.Context, hold int64) error {
		if err := s.store.claim(ctx, goodsNo, hold); err != nil {
			return err
		}
		bought, ok, err := s.store.receipt(ctx, goodsNo, buyer)
		if err != nil {
			return err
		}
		if ok { // an answer got lost on its way, and the buyer asked again
			token, decided = bought, true
			return nil
		}
		stock, err := s.store.read(ctx, goodsNo)
		if err != nil {
			return err
		}
		if err := s.think(ctx); err != nil {
			return err
		}
		if stock < 1 {
			return errSoldOut
		}
		if err := s.store.write(ctx, buyer, item{goodsNo, hold, stock - 1}); err != nil {
			return err
		}
		token, decided = hold, true
		return nil
	})
	return s.decide(ctx, goodsNo, decided, token, err)
}

// decide returns the result of a sale.
func (s *service) decide(ctx context.Context, goodsNo string, isDecided bool, token int64, err error) (int64, error) {
	if isDecided {
		// The sale is in the database. A lock that is lost or not released after that is no reason to deny the sale.
		if err != nil {
			s.log.WarnContext(ctx, "sold, but the lock ended badly", "goods", goodsNo, "err", err)
		}
		return token, nil
	}
	return 0, err
}

// reply ignores the error, because the buyer may be disconnected.
func reply(w http.ResponseWriter, status int, a answer) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(a)
}
