package screen

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCutCountsColumns(t *testing.T) {
	require.Equal(t, "report", Cut("report", 6))
	require.Equal(t, "repo…", Cut("report", 5))
	require.Equal(t, "報告書", Cut("報告書", 6))
	require.Equal(t, "報告…", Cut("報告書", 5))
	require.Equal(t, "報…", Cut("報告書", 4))
}

func TestQuoteShortens(t *testing.T) {
	require.Equal(t, `"ann"`, Quote("ann"))
	require.Equal(t, `"`+strings.Repeat("é", maxID)+`"`, Quote(strings.Repeat("é", maxID)))
	require.Equal(t, `"`+strings.Repeat("é", maxID)+`…"`, Quote(strings.Repeat("é", maxID+1)))
}
