package main

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
	"github.com/zkrecipes/zkrecipes/recipes/zktest/zkclient"
)

// otherGoods is sold together with goods.
const otherGoods = "G2"

// newBasketService is newService with a second row of goods, and locks in a ZooKeeper.
func newBasketService(t *testing.T, items int) (*service, *zktest.Server) {
	t.Helper()
	s, server := newService(t), zktest.NewServer(t)
	client := zkclient.Connect(t, server)
	s.guard, s.basketGuard = locked(client), lockedTogether(client)
	require.NoError(t, s.store.reset(t.Context(), goods, items))
	require.NoError(t, s.store.reset(t.Context(), otherGoods, items))
	return s, server
}

// requireStock requires the stock and the number of sales of goods.
func requireStock(t *testing.T, s *service, goodsNo string, stock, sales int) {
	t.Helper()
	left, err := s.store.read(t.Context(), goodsNo)
	require.NoError(t, err)
	require.Equal(t, stock, left, goodsNo)
	recorded, err := s.store.sales(t.Context(), goodsNo)
	require.NoError(t, err)
	require.Equal(t, sales, recorded, goodsNo)
}

// A basket is sold as a whole, once to a buyer, and not at all if one of its goods is sold out. One transaction acquires its locks.
func TestServiceSellsBaskets(t *testing.T) {
	s, server := newBasketService(t, 2)
	log := server.Observe()
	res, first := get(t, s, "/goods-stock/G1,G2?buyer=ann")
	require.Equal(t, http.StatusOK, res.StatusCode)
	require.Equal(t, resultSold, first.Result)
	require.Zero(t, log.Count(zktest.OpCreate2), "a create for each lock")
	_, again := get(t, s, "/goods-stock/G1,G2?buyer=ann")
	require.Equal(t, first, again)
	res, _ = get(t, s, "/goods-stock/G2")
	require.Equal(t, http.StatusOK, res.StatusCode)
	requireStock(t, s, goods, 1, 1)
	requireStock(t, s, otherGoods, 0, 2)

	for path, status := range map[string]int{
		"/goods-stock/G1,G2":                              http.StatusConflict,
		"/goods-stock/G2,G1":                              http.StatusConflict,
		"/goods-stock/G1,G1":                              http.StatusBadRequest,
		"/goods-stock/G1,":                                http.StatusBadRequest,
		"/goods-stock/G1,none":                            http.StatusNotFound,
		"/goods-stock/G1,a%2Fb":                           http.StatusBadRequest,
		"/goods-stock/" + strings.Repeat("G,", mostGoods): http.StatusBadRequest,
	} {
		res, _ := get(t, s, path)
		require.Equal(t, status, res.StatusCode, path)
	}
	requireStock(t, s, goods, 1, 1)
}

// A buyer who bought one of the goods of a basket is refused for good, and nothing is sold.
func TestBuyerOfAPartOfABasket(t *testing.T) {
	s, _ := newBasketService(t, 2)
	res, _ := get(t, s, "/goods-stock/G2?buyer=ann")
	require.Equal(t, http.StatusOK, res.StatusCode)
	res, a := get(t, s, "/goods-stock/G1,G2?buyer=ann")
	require.Equal(t, http.StatusConflict, res.StatusCode)
	require.Equal(t, resultBought, a.Result)
	require.Empty(t, res.Header.Get("Retry-After"))
	requireStock(t, s, goods, 2, 0)
	requireStock(t, s, otherGoods, 1, 1)
}

// If one of the rows belongs to a later holder, nothing of the basket is sold.
func TestStaleBasketSellsNothing(t *testing.T) {
	s, _ := newBasketService(t, 2)
	s.think = func(ctx context.Context) error { return s.store.claim(ctx, otherGoods, 1<<40) }
	res, a := get(t, s, "/goods-stock/G1,G2")
	require.Equal(t, http.StatusServiceUnavailable, res.StatusCode)
	require.Equal(t, resultStale, a.Result)
	requireStock(t, s, goods, 2, 0)
	requireStock(t, s, otherGoods, 2, 0)
}

// Buyers of the same goods in both orders, and of single goods, do not block each other for ever.
func TestBasketsInBothOrders(t *testing.T) {
	const each = 10
	s, _ := newBasketService(t, 3*each)
	var crowd sync.WaitGroup
	for range each {
		for _, wanted := range []string{"G1,G2", "G2,G1", "G1", "G2"} {
			crowd.Go(func() { // joined below
				if res, a := get(t, s, "/goods-stock/"+wanted); res.StatusCode != http.StatusOK {
					t.Errorf("%s: %s", wanted, a.Result)
				}
			})
		}
	}
	crowd.Wait()
	requireStock(t, s, goods, 0, 3*each)
	requireStock(t, s, otherGoods, 0, 3*each)
}
