package recipes_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// Names and ids chosen by other programs are quoted in errors if they can't be printed.
func TestErrorsQuoteWhatCantBePrinted(t *testing.T) {
	err := &recipes.WaitError{
		Position: 2, Holder: recipes.Participant{ID: "web\n3", Path: "/locks/a\u202e/lock-0000000000"}, Err: context.Canceled,
	}
	require.Equal(t, `not acquired after 0s in position 2, behind "web\n3" at "/locks/a\u202e/lock-0000000000": context canceled`, err.Error())
	require.Equal(t, `x "/a\u202e": context canceled`, (&recipes.OpError{Op: "x", Path: "/a\u202e", Err: context.Canceled}).Error())
}
