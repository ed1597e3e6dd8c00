package multilock

import (
	"fmt"
	"log/slog"
	"strconv"
	"strings"
)

// String returns "multilock of 2: mutex /locks/a, mutex /locks/b".
func (m *InterProcessMultiLock) String() string { return describe(m.locks) }

// LogValue returns String.
func (m *InterProcessMultiLock) LogValue() slog.Value { return slog.StringValue(m.String()) }

// String describes the leases of the parts, as InterProcessMultiLock.String describes the locks.
func (l *Lease) String() string { return describe(l.parts) }

// LogValue returns String.
func (l *Lease) LogValue() slog.Value { return slog.StringValue(l.String()) }

func describe[T any](parts []T) string {
	texts := make([]string, len(parts))
	for i, part := range parts {
		texts[i] = fmt.Sprint(part)
	}
	return "multilock of " + strconv.Itoa(len(parts)) + ": " + strings.Join(texts, ", ")
}
