package session_test

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// The header of an answer.
const header, zxidAt = 16, 4

var togetherDirs = []string{"/a", "/b", "/c"}

// createTogether creates a contender with data in each directory, and ends the reservations, like an Acquire.
func createTogether(t *testing.T, s *session.Session, data []byte, dirs ...string) ([]session.Created[[]string], error) {
	t.Helper()
	var plans []session.Planned[[]string]
	for _, dir := range dirs {
		reservation, err := s.Budget().Request(dir, session.BytesOf(dir, "lock-"))
		require.NoError(t, err)
		defer reservation.End()
		plans = append(plans, session.Planned[[]string]{
			Dir: dir, Prefix: "lock-", Data: data, Reservation: reservation, Parse: func(children []string) []string { return children },
		})
	}
	return session.CreateTogether(t.Context(), s, plans)
}

// togetherOn returns a session whose client gets each answer to a transaction as change returns it.
func togetherOn(t *testing.T, change func(body []byte) []byte) (*fixture.Ensemble, *session.Session) {
	t.Helper()
	srv := fixture.NewEnsemble(t)
	for _, dir := range togetherDirs {
		srv.Put(dir, nil)
	}
	cfg := srv.Config(6 * time.Second)
	cfg.Dialer = mangle(cfg.Dialer, func(op int32, body []byte) []byte {
		if op != proto.OpMulti {
			return nil
		}
		return framed(change(body))
	})
	return srv, fixture.Connect(t, cfg)
}

// The answer to a transaction is of no use without the path of each znode, or with a zxid that is no czxid. Then the znodes are deleted,
// found by their uuids, and no bytes of the budget remain in use.
func TestUnusableAnswerToATransaction(t *testing.T) {
	for name, change := range map[string]func(body []byte) []byte{
		"no paths": func(body []byte) []byte {
			return proto.NewEncoder().Raw(body[:header]).Int32(proto.OpError).Bool(true).Int32(-1).Frame()[4:]
		},
		"one path": func(body []byte) []byte {
			return proto.NewEncoder().Raw(body[:header]).Int32(proto.OpCreate).Bool(false).Int32(0).String("/a/_c_x-lock-0000000000").
				Int32(proto.OpError).Bool(true).Int32(-1).Frame()[4:]
		},
		"no czxid": func(body []byte) []byte {
			body = slices.Clone(body)
			binary.BigEndian.PutUint64(body[zxidAt:], 0)
			return body
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				srv, s := togetherOn(t, change)
				before := srv.LastWrite()
				bubble.Pass(time.Millisecond)
				_, err := createTogether(t, s, nil, togetherDirs...)
				require.ErrorContains(t, err, "lacks paths or the czxid")
				require.NotEqual(t, before, srv.LastWrite(), "the transaction was executed")
				require.Equal(t, 3, srv.Log.Count(zktest.OpDelete))
				for _, dir := range togetherDirs {
					require.Empty(t, srv.Children(dir))
				}
				require.Zero(t, s.Budget().Usage())
				bubble.Pass(10 * time.Second)
				require.Equal(t, 3, srv.Log.Count(zktest.OpDelete))
			})
		})
	}
}

// A server may execute a transaction after the client lost the connection and found no znode. A session timeout later, the znodes are
// deleted in all directories.
func TestTransactionExecutedLate(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, s := togetherOn(t, func(body []byte) []byte { return body })
		var mu sync.Mutex // protects names
		var names [][]byte
		srv.OnWrite(func(frame []byte) error {
			mu.Lock()
			defer mu.Unlock()
			names = append(names, regexp.MustCompile(`/[abc]/_c_[0-9a-f-]{36}-lock-`).FindAll(frame, -1)...)
			return nil
		})
		srv.Once(zktest.OpMulti, zktest.Fault{Lost: zktest.RequestLost})
		_, err := createTogether(t, s, nil, togetherDirs...)
		require.Error(t, err)
		bubble.Pass(2 * time.Second)
		mu.Lock()
		require.Len(t, names, len(togetherDirs))
		for _, name := range names {
			srv.Put(string(name)+"0000000000", nil)
		}
		mu.Unlock()
		bubble.Pass(s.Timeout())
		for _, dir := range togetherDirs {
			require.Empty(t, srv.Children(dir))
		}
	})
}

// A refused transaction leaves no bytes of the budget in use, and no directory that it made.
func TestRefusedTransaction(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		count := 0
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Op != zktest.OpMulti {
				return zktest.Fault{}
			}
			if count++; count == 1 {
				return zktest.Fault{} // the directories are missing
			}
			return zktest.Fault{Refusal: zktest.RefuseNoAuth}
		})
		_, err := createTogether(t, s, nil, "/locks/a", "/locks/b")
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.Equal(t, 2, count)
		require.Zero(t, s.Budget().Usage())
		require.Equal(t, []string{"zookeeper"}, srv.Children("/"))
	})
}

// Missing directories are created with their ancestors, on servers without containers, too.
func TestTransactionInMissingDirectories(t *testing.T) {
	for _, dialect := range []zktest.Dialect{zktest.ZooKeeper34, zktest.ZooKeeper38} {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t, zktest.WithDialect(dialect))
			s := fixture.Connect(t, srv.Config(6*time.Second))
			require.NoError(t, bubble.Acquire(t, fixture.MutexOn(s, "/made").Acquire).Leave()) // shows what the servers support
			asked := srv.Log.Count(zktest.OpCreateContainer)
			dirs := []string{"/a/b/c", "/made", "/d", "/d/e/f", "/a/b/g", "/a", "/made/h"}
			created, err := createTogether(t, s, nil, dirs...)
			require.NoError(t, err)
			for i, dir := range dirs {
				_, stat, ok := srv.Get(created[i].Path)
				require.True(t, ok)
				require.Equal(t, created[i].Token, stat.Czxid)
				require.True(t, strings.HasPrefix(created[i].Path, dir+"/_c_"))
			}
			if dialect == zktest.ZooKeeper34 {
				require.Equal(t, asked, srv.Log.Count(zktest.OpCreateContainer))
			}
		})
	}
}

// If the servers refuse a directory, those that were made are deleted.
func TestTransactionWithARefusedDirectory(t *testing.T) {
	for refused := range togetherDirs {
		testkit.Bubble(t, func(t *testing.T) {
			srv := fixture.NewEnsemble(t)
			s := fixture.Connect(t, srv.Config(6*time.Second))
			srv.OnRequest(func(r zktest.Request) zktest.Fault {
				if r.Op == zktest.OpCreateContainer && r.Path == togetherDirs[refused] {
					return zktest.Fault{Refusal: zktest.RefuseNoAuth}
				}
				return zktest.Fault{}
			})
			_, err := createTogether(t, s, nil, togetherDirs...)
			require.ErrorIs(t, err, zk.ErrNoAuth)
			require.Equal(t, []string{"zookeeper"}, srv.Children("/"))
			require.Zero(t, s.Budget().Usage())
		})
	}
}

// One of several directories made for a transaction is refused, and another client uses one of the others by then. The rest is deleted.
func TestDirectoriesMadeInVain(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		srv.OnRequest(func(r zktest.Request) zktest.Fault {
			if r.Path != "/d" || r.Op != zktest.OpCreateContainer {
				return zktest.Fault{}
			}
			srv.Put("/c/other", nil)
			return zktest.Fault{Refusal: zktest.RefuseNoAuth}
		})
		_, err := createTogether(t, s, nil, "/a", "/b", "/c", "/d")
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ElementsMatch(t, []string{"c", "zookeeper"}, srv.Children("/"))
	})
}

// A transaction has at most 1,000 parts, and half the bytes that a server accepts by default. A longer one is not sent, unless it creates a
// single znode.
func TestTransactionTooLong(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		var dirs []string
		for i := range 1001 {
			dirs = append(dirs, fmt.Sprintf("/%d", i))
		}
		_, err := createTogether(t, s, nil, dirs...)
		require.ErrorIs(t, err, zk.ErrShortBuffer)
		_, err = createTogether(t, s, make([]byte, 256<<10), "/a", "/b")
		require.ErrorIs(t, err, zk.ErrShortBuffer)
		require.Zero(t, srv.Log.Count(zktest.OpMulti))
		require.Zero(t, s.Budget().Usage())
		created, err := createTogether(t, s, nil, dirs[1:]...)
		require.NoError(t, err)
		require.Len(t, created, 1000)
		_, err = createTogether(t, s, make([]byte, 600<<10), "/long")
		require.NoError(t, err)
	})
}

// The zxid of an answer may be that of a later transaction. The lists show that no znode was created then, and each hold has the czxid of its
// znode as its token.
func TestAnswerWithALaterZxid(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv, s := togetherOn(t, func(body []byte) []byte {
			body = slices.Clone(body)
			binary.BigEndian.PutUint64(body[zxidAt:], binary.BigEndian.Uint64(body[zxidAt:])+1)
			return body
		})
		var queues []*queue.Queue
		for _, dir := range togetherDirs {
			queues = append(queues, fixture.MutexOn(s, dir).Queue)
		}
		basket := queue.NewBasket(queues, true)
		ctx := basket.With(t.Context())
		for _, q := range queues {
			e, err := q.Acquire(ctx, true, nil)
			require.NoError(t, err)
			_, stat, ok := srv.Get(e.Path())
			require.True(t, ok)
			require.Equal(t, stat.Czxid, e.Token())
			defer func() { require.NoError(t, e.Leave()) }()
		}
	})
}
