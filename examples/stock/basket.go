package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/multilock"
)

// mostGoods bounds a basket.
const mostGoods = 50

// A basketGuard runs fn while it holds the locks of all goods, and passes their fencing tokens in the same order.
type basketGuard func(ctx context.Context, goods []string, fn func(ctx context.Context, tokens []int64) error) error

// lockedTogether is the guard of baskets: one multilock of the mutexes that locked uses. If all are free, one
// transaction acquires them, and another releases them. NewMutexes sorts its paths, so buyers with the same goods
// in different orders can't deadlock. goods have to be sorted, too, because the leases are in that order.
func lockedTogether(client *recipes.Client) basketGuard {
	return func(ctx context.Context, goods []string, fn func(context.Context, []int64) error) error {
		paths := make([]string, len(goods))
		for i, goodsNo := range goods {
			paths[i] = lockPath(goodsNo)
		}
		m, err := multilock.NewMutexes(client, paths)
		if err != nil {
			return err
		}
		return m.Do(ctx, func(ctx context.Context, lease *multilock.Lease) error {
			tokens := make([]int64, len(goods))
			for i, part := range lease.Leases() {
				tokens[i] = part.FencingToken()
			}
			return fn(ctx, tokens)
		})
	}
}

// unlockedTogether is unlocked for baskets.
func unlockedTogether(ctx context.Context, goods []string, fn func(context.Context, []int64) error) error {
	return fn(ctx, make([]int64, len(goods)))
}

// isBasket reports whether goods are valid goods numbers that can be bought together: each only once.
func isBasket(goods []string) bool {
	isInvalid := func(goodsNo string) bool { return !name.MatchString(goodsNo) }
	different := slices.Compact(slices.Sorted(slices.Values(goods)))
	return len(goods) <= mostGoods && len(different) == len(goods) && !slices.ContainsFunc(goods, isInvalid)
}

// sellBasket is sell for one item each of several goods. The buyer gets all of them or none.
func (s *service) sellBasket(ctx context.Context, goods []string, buyer string) (token int64, err error) {
	goods = slices.Sorted(slices.Values(goods))
	for _, goodsNo := range goods {
		if _, err := s.store.read(ctx, goodsNo); err != nil {
			return 0, err
		}
	}
	isDecided := false
	err = s.basketGuard(ctx, goods, func(ctx context.Context, tokens []int64) error {
		items, receipts, err := s.claimBasket(ctx, goods, buyer, tokens)
		if err != nil {
			return err
		}
		if len(receipts) == len(goods) { // an answer got lost on its way, and the buyer asked again
			token, isDecided = receipts[0], true
			return nil
		}
		if len(receipts) > 0 {
			return errBought
		}
		if err := s.think(ctx); err != nil {
			return err
		}
		if i := slices.IndexFunc(items, func(i item) bool { return i.stock < 0 }); i >= 0 {
			return fmt.Errorf("%s: %w", goods[i], errSoldOut)
		}
		if err := s.store.write(ctx, buyer, items...); err != nil {
			return err
		}
		token, isDecided = tokens[0], true
		return nil
	})
	return s.decide(ctx, goods[0], isDecided, token, err)
}

// claimBasket claims all goods, and then returns them as they will be after the sale, with the tokens of the buyer's earlier purchases.
func (s *service) claimBasket(ctx context.Context, goods []string, buyer string, tokens []int64) (items []item, receipts []int64, err error) {
	for i, goodsNo := range goods {
		if err := s.store.claim(ctx, goodsNo, tokens[i]); err != nil {
			return nil, nil, err
		}
	}
	for i, goodsNo := range goods {
		stock, err := s.store.read(ctx, goodsNo)
		if err != nil {
			return nil, nil, err
		}
		items = append(items, item{goodsNo, tokens[i], stock - 1})
		bought, ok, err := s.store.receipt(ctx, goodsNo, buyer)
		if err != nil {
			return nil, nil, err
		}
		if ok {
			receipts = append(receipts, bought)
		}
	}
	return items, receipts, nil
}
