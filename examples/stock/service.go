package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// name is what goods numbers and buyers may look like. A goods number becomes a
// segment of a znode path, so nothing may come in that ZooKeeper reads as more.
var name = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// A guard runs fn while it holds goodsNo, and hands it the fencing token of that
// hold. It returns fn's error, joined with its own.
type guard func(ctx context.Context, goodsNo string, fn func(ctx context.Context, token int64) error) error

// locked is the guard to use: one InterProcessMutex for each goods number, so
// that buyers of different goods never wait for each other.
func locked(client *recipes.Client) guard {
	return func(ctx context.Context, goodsNo string, fn func(context.Context, int64) error) error {
		m, err := mutex.New(client, "/stock/locks/"+goodsNo)
		if err != nil {
			return err
		}
		// fn gets the lease's context: it ends when the lock is lost, and takes
		// the SQL statements of a holder that may not be one any more with it.
		return m.Do(ctx, func(ctx context.Context, lease *recipes.Lease) error {
			return fn(ctx, lease.FencingToken())
		})
	}
}

// lockedInCohort is locked for crowds: all buyers of goodsNo at this service share one place in the queue, and
// pass the lock on among themselves.
//
// Holders who follow each other inside have the same token. So a write of one must have ended before the next one
// holds the lock: it is not abandoned when the buyer's patience ends, only when the lock is lost, after which the
// token is another. The patience bounds the wait for the lock.
func lockedInCohort(client *recipes.Client) guard {
	return func(ctx context.Context, goodsNo string, fn func(context.Context, int64) error) error {
		m, err := mutex.New(client, "/stock/locks/"+goodsNo, mutex.WithCohort(mutex.Cohort{}))
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

// service sells goods over HTTP. Any number of them, in any number of processes,
// may share one store.
type service struct {
	store    *store
	guard    guard
	think    func(context.Context) error // between reading the stock and writing it
	patience time.Duration               // for one purchase
	log      *slog.Logger
}

// The results a buyer may be told.
const (
	resultSold    = "sold"
	resultSoldOut = "sold out"
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

// serveGoodsStock answers 200 for one item sold, 409 when sold out, 404 for
// goods that are unknown or inactive, 400 for what can be no goods or buyer, and
// 503 with Retry-After when the purchase may or may not have taken place.
//
// A buyer repeats a purchase safely by giving the same ?buyer= again: whoever
// bought already is told so and gets no second item.
func (s *service) serveGoodsStock(w http.ResponseWriter, r *http.Request) {
	a := answer{GoodsNo: r.PathValue("goodsNo"), Buyer: r.URL.Query().Get("buyer")}
	if a.Buyer == "" {
		a.Buyer = rand.Text()
	}
	if !name.MatchString(a.GoodsNo) || !name.MatchString(a.Buyer) {
		a.Result = resultInvalid
		reply(w, http.StatusBadRequest, a)
		return
	}

	ctx, cancel := context.WithTimeout(r.Context(), s.patience)
	defer cancel()
	token, err := s.sell(ctx, a.GoodsNo, a.Buyer)
	switch {
	case err == nil:
		a.Result, a.Token = resultSold, token
		reply(w, http.StatusOK, a)
	case errors.Is(err, errSoldOut):
		a.Result = resultSoldOut
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

// sell takes one item off the stock of goodsNo for buyer, and returns the token
// of the lock it was sold under.
//
// The row is claimed before it is read. The lock keeps buyers apart as long as
// its holder notices in time that it was lost; one that was paused in between,
// by the machine or the garbage collector, can't notice. Its successor has then
// claimed the row with a higher token, and what the paused one writes on waking
// up is refused with errStale.
//
// Stock never rises here, so a service could turn buyers away without the lock
// once it has read 0. It does not: each of them is to go through the lock.
func (s *service) sell(ctx context.Context, goodsNo, buyer string) (token int64, err error) {
	// Whoever makes names up must not make znodes with them.
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
		if err := s.store.write(ctx, goodsNo, buyer, hold, stock-1); err != nil {
			return err
		}
		token, decided = hold, true
		return nil
	})
	if decided {
		// The sale is in the database. That the lock was lost or could not be
		// released after it is no reason to deny it.
		if err != nil {
			s.log.WarnContext(ctx, "sold, but the lock ended badly", "goods", goodsNo, "err", err)
		}
		return token, nil
	}
	return 0, err
}

// reply has no one to tell when the buyer is gone already.
func reply(w http.ResponseWriter, status int, a answer) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(a)
}
