package elections

import (
	"errors"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
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
func Paths(srv *zktest.Server) []string { return bubble.Queue(srv, Path) }

// Open returns a client that needs no server yet.
func Open(t *testing.T, srv *zktest.Server, opts ...recipes.Option) *recipes.Client {
	t.Helper()
	client, err := recipes.Open(srv.Addrs(), append([]recipes.Option{recipes.WithSessionTimeout(Timeout), recipes.WithDialer(srv.Dialer())}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client
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
