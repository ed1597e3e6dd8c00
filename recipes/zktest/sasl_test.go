package zktest_test

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/conformance"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The module integration expects the same lines of a real server.
func TestSASLIsARealServers(t *testing.T) {
	for kind, opts := range map[conformance.LoginKind][]zktest.Option{
		conformance.LoginsUnknown:  nil,
		conformance.LoginsOptional: {zktest.WithSASL(conformance.LoginUsers)},
		conformance.LoginsRequired: {zktest.WithSASL(conformance.LoginUsers), zktest.WithSASLRequired()},
	} {
		everywhere(t, func(w world) {
			w.Helper()
			srv := zktest.NewServer(w, opts...)
			lines, err := conformance.Logins(func() (net.Conn, error) { return w.dial(srv), nil })
			require.NoError(w, err)
			require.Equal(w, conformance.LoginLines(kind), lines)
		})
	}
}
