package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDatabaseThatCannotBeOpened(t *testing.T) {
	_, err := openStore(t.Context(), t.TempDir())
	require.ErrorContains(t, err, "database: ")
}

// A second process finds the tables there and the rows in them, and neither file
// name nor folder is taken for a part of a URL.
func TestDatabaseOpensAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "100% stock?.db")
	first, err := openStore(t.Context(), file)
	require.NoError(t, err)
	defer func() { require.NoError(t, first.Close()) }()
	require.NoError(t, first.reset(t.Context(), goods, 100))
	require.FileExists(t, file)

	second, err := openStore(t.Context(), file)
	require.NoError(t, err)
	defer func() { require.NoError(t, second.Close()) }()
	requireStore(t, second, 100, 0)
}
