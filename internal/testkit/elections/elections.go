package elections

import (
	"context"
	"errors"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// Path is the contended path.
const Path = "/services/billing"

// The times of the tests.
const (
	Timeout          = testclient.SessionTimeout // of the sessions
	OperationTimeout = 10 * time.Second          // of the clients, by default
	Grace            = 5 * time.Second           // of a step-down, where a test asks for one
	Tick             = 50 * time.Millisecond
	Reaction         = 3 * time.Second // of a callback to the end of its term, where a test asks for one
)

// Errors returned by a test's work, or used as the cause of a canceled context.
var (
	ErrWork     = errors.New("no database")
	ErrShutdown = errors.New("SIGTERM")
)

// SessionOf returns the id of a client's session.
func SessionOf(client *recipes.Client) int64 { return client.Conn().SessionID() }

// Paths returns the paths of the participants' znodes.
func Paths(srv *zktest.Server) []string {
	names := srv.Children(Path)
	for i, name := range names {
		names[i] = Path + "/" + name
	}
	return names
}

// Adopt returns a client with an adopted connection. The connection need not have a server.
func Adopt(t *testing.T, srv *zktest.Server, opts ...recipes.Option) *recipes.Client {
	t.Helper()
	conn, events, err := zk.Connect(srv.Addrs(), Timeout, zk.WithDialer(srv.Dialer()), zk.WithLogger(testkit.Quiet{}))
	require.NoError(t, err)
	srv.Delay(zktest.OpAny, 10*time.Millisecond) // an early answer would race with zk.Conn's look for watches to set again
	client, err := recipes.NewClient(conn, events, opts...)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, client.Close())
		conn.Close()
	})
	return client
}

// Ended waits for the end of a term, and returns the cause.
func Ended(t *testing.T, term *recipes.Lease) error {
	t.Helper()
	select {
	case <-term.Context().Done():
		return context.Cause(term.Context())
	case <-time.After(time.Hour):
		require.FailNow(t, "the term stands after an hour")
		return nil
	}
}

// ParticipantOf returns the leader as seen by other participants.
func ParticipantOf(srv *zktest.Server, id string, term *recipes.Lease) recipes.Participant {
	_, stat, _ := srv.Get(term.Path())
	return recipes.Participant{
		ID: id, Path: term.Path(), Leader: true, Token: term.FencingToken(), Since: time.UnixMilli(stat.Ctime),
	}
}

// Broken returns the ways in which a callback ends without doing its work.
func Broken() map[string]func() {
	return map[string]func(){"panic": func() { panic("boom") }, "goexit": runtime.Goexit}
}

// WatchChannels returns the number of channels kept by a connection for its watches. Several watches on one path have a channel each.
func WatchChannels(conn *zk.Conn) (n int) {
	for kinds := reflect.ValueOf(conn).Elem().FieldByName("watchers").MapRange(); kinds.Next(); {
		n += kinds.Value().Len()
	}
	return n
}
