package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const goods = "G1"

// sqliteStore is an empty store on a file of the test's own.
func sqliteStore(t *testing.T) *store {
	t.Helper()
	s, err := openStore(t.Context(), filepath.Join(t.TempDir(), "stock.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestStoreOnSQLite(t *testing.T) { testStore(t, sqliteStore) }

// testStore is what every database has to do. open returns an empty store.
func testStore(t *testing.T, open func(*testing.T) *store) {
	t.Helper()
	for name, test := range map[string]func(*testing.T, *store){
		"sells":                               testSells,
		"unknown and inactive goods":          testUnknownGoods,
		"claims again with the same token":    testClaimsAgain,
		"refuses an earlier holder":           testRefusesEarlierHolder,
		"records a sale with its write":       testWriteIsWhole,
		"tells upper from lower case":         testCase,
		"forgets on reset":                    testReset,
		"token on the write alone loses":      testTokenOnTheWriteAloneLosesUpdates,
		"a claim before the read loses not":   testClaimBeforeReadLosesNothing,
		"fencing tokens as large as they get": testLargeToken,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			require.NoError(t, s.reset(t.Context(), goods, 100))
			test(t, s)
		})
	}
}

func testSells(t *testing.T, s *store) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, s.claim(ctx, goods, 33))
	stock, err := s.read(ctx, goods)
	require.NoError(t, err)
	require.Equal(t, 100, stock)
	require.NoError(t, s.write(ctx, "ann", item{goods, 33, stock - 1}))

	stock, err = s.read(ctx, goods)
	require.NoError(t, err)
	require.Equal(t, 99, stock)
	token, ok, err := s.receipt(ctx, goods, "ann")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, int64(33), token)
	_, ok, err = s.receipt(ctx, goods, "bob")
	require.NoError(t, err)
	require.False(t, ok)
	requireStore(t, s, 99, 1)
}

func testUnknownGoods(t *testing.T, s *store) {
	t.Helper()
	ctx := t.Context()
	_, err := s.read(ctx, "none")
	require.ErrorIs(t, err, errUnknownGoods)
	require.ErrorIs(t, s.claim(ctx, "none", 33), errUnknownGoods)

	_, err = s.db.ExecContext(ctx, `UPDATE goods_stock SET isActive = FALSE WHERE goods_no = ?`, goods)
	require.NoError(t, err)
	_, err = s.read(ctx, goods)
	require.ErrorIs(t, err, errUnknownGoods)
	require.ErrorIs(t, s.claim(ctx, goods, 33), errUnknownGoods)
}

// MySQL counts changed rows by default, and would refuse this claim.
func testClaimsAgain(t *testing.T, s *store) {
	t.Helper()
	require.NoError(t, s.claim(t.Context(), goods, 33))
	require.NoError(t, s.claim(t.Context(), goods, 33))
	require.NoError(t, s.write(t.Context(), "ann", item{goods, 33, 100}), "the stock it has already")
}

func testRefusesEarlierHolder(t *testing.T, s *store) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, s.claim(ctx, goods, 33))
	require.NoError(t, s.claim(ctx, goods, 34))
	require.ErrorIs(t, s.write(ctx, "ann", item{goods, 33, 99}), errStale)
	require.ErrorIs(t, s.claim(ctx, goods, 33), errStale)
	requireStore(t, s, 100, 0)

	require.ErrorIs(t, s.write(ctx, "ann", item{goods, 35, 99}), errStale, "a holder that has not claimed")
	require.NoError(t, s.write(ctx, "bob", item{goods, 34, 99}))
	requireStore(t, s, 99, 1)
}

func testWriteIsWhole(t *testing.T, s *store) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, s.claim(ctx, goods, 33))
	require.NoError(t, s.write(ctx, "ann", item{goods, 33, 99}))
	require.Error(t, s.write(ctx, "ann", item{goods, 33, 98}), "a buyer buys once")
	requireStore(t, s, 99, 1)
}

func testCase(t *testing.T, s *store) {
	t.Helper()
	ctx := t.Context()
	_, err := s.read(ctx, strings.ToLower(goods))
	require.ErrorIs(t, err, errUnknownGoods)
	require.NoError(t, s.claim(ctx, goods, 33))
	require.NoError(t, s.write(ctx, "ann", item{goods, 33, 99}))
	_, ok, err := s.receipt(ctx, goods, "Ann")
	require.NoError(t, err)
	require.False(t, ok, "Ann is somebody else")
}

func testReset(t *testing.T, s *store) {
	t.Helper()
	ctx := t.Context()
	require.NoError(t, s.claim(ctx, goods, 33))
	require.NoError(t, s.write(ctx, "ann", item{goods, 33, 99}))
	require.NoError(t, s.reset(ctx, goods, 7))
	requireStore(t, s, 7, 0)
	require.NoError(t, s.claim(ctx, goods, 1), "a new ensemble counts from the beginning")
}

// Why claim exists. The lock was lost to the pause of 33, and the token is
// compared, with <=, in the write only: nothing is refused, two items are sold,
// and one is taken off.
func testTokenOnTheWriteAloneLosesUpdates(t *testing.T, s *store) {
	t.Helper()
	ctx := t.Context()
	naiveWrite := func(token int64, stock int) {
		res, err := s.db.ExecContext(ctx,
			`UPDATE goods_stock SET stock = ?, token = ? WHERE goods_no = ? AND isActive AND token <= ?`,
			stock, token, goods, token)
		found, err := matched(res, err)
		require.NoError(t, err)
		require.True(t, found, "the write of %d is let through", token)
	}
	read := func() int {
		stock, err := s.read(ctx, goods)
		require.NoError(t, err)
		return stock
	}

	readBy33 := read() // and 33 is paused
	readBy34 := read()
	naiveWrite(33, readBy33-1) // 33 resumes before 34 writes
	naiveWrite(34, readBy34-1)
	require.Equal(t, 99, read(), "two sold, one taken off")
}

// The same with a claim before each read.
func testClaimBeforeReadLosesNothing(t *testing.T, s *store) {
	t.Helper()
	ctx := t.Context()
	claimAndRead := func(token int64) int {
		require.NoError(t, s.claim(ctx, goods, token))
		stock, err := s.read(ctx, goods)
		require.NoError(t, err)
		return stock
	}

	readBy33 := claimAndRead(33) // and 33 is paused
	readBy34 := claimAndRead(34)
	require.ErrorIs(t, s.write(ctx, "ann", item{goods, 33, readBy33 - 1}), errStale)
	require.NoError(t, s.write(ctx, "bob", item{goods, 34, readBy34 - 1}))
	requireStore(t, s, 99, 1)
}

// The upper half of a zxid is the epoch: tokens are large from the start.
func testLargeToken(t *testing.T, s *store) {
	t.Helper()
	const token = 1<<63 - 1
	require.NoError(t, s.claim(t.Context(), goods, token))
	require.NoError(t, s.write(t.Context(), "ann", item{goods, token, 99}))
	got, _, err := s.receipt(t.Context(), goods, "ann")
	require.NoError(t, err)
	require.Equal(t, int64(token), got)
}

func requireStore(t *testing.T, s *store, stock, sales int) {
	t.Helper()
	gotStock, err := s.read(t.Context(), goods)
	require.NoError(t, err)
	gotSales, err := s.sales(t.Context(), goods)
	require.NoError(t, err)
	require.Equal(t, stock, gotStock, "stock")
	require.Equal(t, sales, gotSales, "sales")
}
