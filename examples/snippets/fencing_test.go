package snippets

import (
	"database/sql"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fencingStatements are the statements of docs/guarantees.md: claim, read, write.
func fencingStatements(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/guarantees.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?ms)^```sql\n(.*?)^```$").FindStringSubmatch(string(text))
	require.NotNil(t, block)
	statements := strings.Split(strings.TrimSpace(block[1]), "\n")
	require.Len(t, statements, 3)
	return statements
}

// A holder that was paused after its read can't write over a later holder, nor claim the row again.
func TestFencingStatements(t *testing.T) {
	db := stock(t)
	statements := fencingStatements(t)
	claim, read, write := statements[0], statements[1], statements[2]
	exec := func(statement string, token, amount int) (rows int64) {
		t.Helper()
		result, err := db.ExecContext(t.Context(), statement, sql.Named("id", 1001), sql.Named("token", token), sql.Named("amount", amount))
		require.NoError(t, err)
		rows, err = result.RowsAffected()
		require.NoError(t, err)
		return rows
	}
	amount := func() (n int) {
		t.Helper()
		require.NoError(t, db.QueryRowContext(t.Context(), read, sql.Named("id", 1001)).Scan(&n))
		return n
	}
	require.EqualValues(t, 1, exec(claim, 5, 0))
	stale := amount()
	require.EqualValues(t, 1, exec(claim, 7, 0), "a later holder")
	require.EqualValues(t, 1, exec(write, 7, amount()-1))
	require.EqualValues(t, 0, exec(write, 5, stale-1), "the paused holder")
	require.EqualValues(t, 0, exec(claim, 5, 0), "the paused holder")
	require.Equal(t, 1, amount(), "one was sold")
}
