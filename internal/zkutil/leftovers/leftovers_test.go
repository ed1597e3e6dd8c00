package leftovers_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/leftovers"
)

func TestListKeepsPendingDeletionsOnly(t *testing.T) {
	var l leftovers.List
	ctx := leftovers.With(t.Context(), &l)
	require.Empty(t, l.Pending())
	end := leftovers.Begin(ctx)
	other := make(chan struct{})
	leftovers.Track(ctx, other)
	require.Len(t, l.Pending(), 2)
	end()
	third := make(chan struct{})
	l.Add(third)
	require.Equal(t, []<-chan struct{}{other, third}, l.Pending())
}

func TestContextCarriesOneList(t *testing.T) {
	var outer, inner leftovers.List
	ctx := leftovers.With(t.Context(), &outer)
	require.Nil(t, leftovers.Of(t.Context()))
	require.Same(t, &inner, leftovers.Of(leftovers.With(ctx, &inner)))
	for _, without := range []context.Context{t.Context(), leftovers.With(ctx, nil)} {
		require.Nil(t, leftovers.Of(without))
		leftovers.Begin(without)()
	}
	require.Empty(t, outer.Pending())
}
