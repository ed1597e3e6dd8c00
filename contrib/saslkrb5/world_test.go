//go:build unix

package saslkrb5_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/contrib/saslkrb5"
	"github.com/zkrecipes/zkrecipes/internal/testkit/logins"
	"github.com/zkrecipes/zkrecipes/recipes"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	realm    = logins.Realm
	patience = time.Minute
)

// world is a KDC, and the clients of a test.
type world struct {
	*testing.T

	kdc *logins.KDC
}

func newWorld(t *testing.T, settings ...string) *world {
	t.Helper()
	return &world{t, logins.StartKDC(t, settings...)}
}

// mechanism returns the mechanism of a configuration, with the realm's files.
func (w *world) mechanism(cfg saslkrb5.Config) recipes.Option {
	w.Helper()
	cfg.ConfigFile = w.kdc.Path("krb5.conf")
	m, err := saslkrb5.New(cfg)
	require.NoError(w, err)
	return recipes.WithSASL(m)
}

// connect connects, and closes the client at the end of the test.
func (w *world) connect(server string, opts ...recipes.Option) (*recipes.Client, error) {
	w.Helper()
	client, err := recipes.Connect(w.Context(), []string{server}, append([]recipes.Option{
		recipes.WithConnectTimeout(patience), recipes.WithSessionTimeout(12 * time.Second),
	}, opts...)...)
	if err == nil {
		w.Cleanup(func() { require.NoError(w, client.Close()) })
	}
	return client, err
}
