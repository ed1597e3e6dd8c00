package recipes_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// logRecord is a kind of record: of the source, or a row of the table of docs/operations.md.
type logRecord struct {
	level, message string
	keys           string // of the attributes, sorted; "…": computed at run time
}

// TestEveryRecordIsInTheTable compares the calls of Log with the table: levels, messages and attributes. Records at
// Debug have no rows.
func TestEveryRecordIsInTheTable(t *testing.T) {
	inSource, inTable := recordsOfSource(t), recordsOfTable(t)
	require.Greater(t, len(inSource), 30)
	for _, record := range inSource {
		row := slices.IndexFunc(inTable, func(row logRecord) bool { return row.message == record.message })
		require.NotEqual(t, -1, row, "no row for %s %q", record.level, record.message)
		require.Equal(t, record.level, inTable[row].level, record.message)
		if record.keys != "…" {
			require.Equal(t, record.keys, inTable[row].keys, record.message)
		}
	}
	for _, row := range inTable {
		require.True(t, slices.ContainsFunc(inSource, func(record logRecord) bool { return row.message == record.message }), "no call for %q", row.message)
	}
}

// recordsOfTable returns the rows that begin with a level. A row may have several messages.
func recordsOfTable(t *testing.T) (rows []logRecord) {
	t.Helper()
	text, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, " | ")
		level, isRow := strings.CutPrefix(cells[0], "| ")
		if !isRow || !slices.Contains([]string{"INFO", "WARN", "ERROR", "WARN or ERROR"}, level) {
			continue
		}
		keys := strings.Split(cells[2], ", ")
		slices.Sort(keys)
		for i, message := range strings.Split(cells[1], "`") {
			if i%2 == 1 {
				rows = append(rows, logRecord{level, message, strings.Join(keys, ", ")})
			}
		}
	}
	return rows
}

// recordsOfSource are those of the calls of Log in the library.
func recordsOfSource(t *testing.T) (records []logRecord) {
	t.Helper()
	for _, dir := range []string{".", "../internal/zkutil"} {
		require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && isLog(call) {
					if record := recordOf(t, path, call); record.level != "DEBUG" {
						records = append(records, record)
					}
				}
				return true
			})
			return nil
		}))
	}
	return records
}

func isLog(call *ast.CallExpr) bool {
	if len(call.Args) < 2 {
		return false
	}
	name := nameOf(call.Fun)
	return name == "Log" || name == "log" && strings.HasPrefix(nameOf(call.Args[0]), "Level")
}

// nameOf returns the last name of a selector expression.
func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.CallExpr:
		return nameOf(e.Fun)
	}
	return ""
}

func recordOf(t *testing.T, path string, call *ast.CallExpr) logRecord {
	t.Helper()
	levels := map[string]string{
		"LevelDebug": "DEBUG", "LevelInfo": "INFO", "LevelWarn": "WARN", "LevelError": "ERROR", "refusalLevel": "WARN or ERROR",
	}
	record := logRecord{level: levels[nameOf(call.Args[0])]}
	require.NotEmpty(t, record.level, "%s: a level that this test does not know", path)
	if record.level == "DEBUG" {
		return record
	}
	record.message = textOf(t, path, call.Args[1])
	var keys []string
	for i := 2; i < len(call.Args); i++ {
		if key, ok := keysOfCalls[nameOf(call.Args[i])]; ok {
			keys = append(keys, key...)
			continue
		}
		literal, ok := call.Args[i].(*ast.BasicLit)
		if !ok {
			require.Equal(t, len(call.Args)-1, i, "%s: %q: a key that is no literal", path, record.message)
			record.keys = "…"
			return record
		}
		keys = append(keys, unquoted(t, literal))
		i++ // the value
	}
	slices.Sort(keys)
	record.keys = strings.Join(keys, ", ")
	return record
}

// keysOfCalls are the attributes that functions return.
var keysOfCalls = map[string][]string{"lastProofAttr": {"last_proof"}, "LogAttributes": {"path", "err"}}

// textOf returns the value of a message: a literal, a concatenation, or the text of a known error.
func textOf(t *testing.T, path string, e ast.Expr) string {
	t.Helper()
	switch e := e.(type) {
	case *ast.BasicLit:
		return unquoted(t, e)
	case *ast.BinaryExpr:
		return textOf(t, path, e.X) + textOf(t, path, e.Y)
	case *ast.CallExpr:
		if selector, ok := e.Fun.(*ast.SelectorExpr); ok && nameOf(selector.X) == "ErrWorkGoesOn" {
			return zkutil.ErrWorkGoesOn.Error()
		}
	}
	require.FailNow(t, "a message that this test can't read", "%s: %s", path, fmt.Sprintf("%T", e))
	return ""
}

func unquoted(t *testing.T, literal *ast.BasicLit) string {
	t.Helper()
	text, err := strconv.Unquote(literal.Value)
	require.NoError(t, err)
	return text
}
