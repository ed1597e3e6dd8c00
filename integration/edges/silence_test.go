package edges_test

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
	"github.com/zkrecipes/zkrecipes/integration/zkadmin"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/latch"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
	"github.com/zkrecipes/zkrecipes/recipes/selector"
)

// witness is a client whose output is recorded: its log from the lowest level up, its errors, and its values in all
// print formats.
type witness struct {
	t      *testing.T
	server string
	proxy  *faultproxy.Proxy
	client *recipes.Client
	log    output
	said   strings.Builder
	ids    []int64
}

func (w *witness) say(values ...any) {
	for _, value := range values {
		fmt.Fprintf(&w.said, "%v %+v %#v %s\n", value, value, value, value)
		if text, err := json.Marshal(value); err == nil {
			w.said.Write(text)
		}
	}
}

// expire ends the present session and waits for another.
func (w *witness) expire() {
	w.t.Helper()
	id := w.otherSession(0)
	require.NoError(w.t, zkadmin.Expire(testkit.Context(w.t), w.server, id))
	w.ids = append(w.ids, id, w.otherSession(id))
}

// otherSession waits for a session other than one, and returns its id. Between two sessions zk.Conn has the id 0.
func (w *witness) otherSession(than int64) (id int64) {
	w.t.Helper()
	testkit.Eventually(w.t, func() bool { id = w.client.Conn().SessionID(); return id != 0 && id != than }, "another session")
	return id
}

func (w *witness) cut() {
	w.t.Helper()
	states, stop := w.client.Subscribe()
	defer stop()
	w.proxy.Cut()
	for state := range states {
		if state == recipes.Reconnected {
			return
		}
	}
}

// No log line, error or value shows a session id, in any use of the mutex (also tested by TestSessionIDsAreNotLogged of
// recipes/mutex), the latch and the selector.
func TestSessionIDsAreNeverShown(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]func(*output, *slog.HandlerOptions) slog.Handler{
		"text": text,
		"json": func(o *output, options *slog.HandlerOptions) slog.Handler { return slog.NewJSONHandler(o, options) },
	} {
		t.Run(name, func(t *testing.T) {
			w := &witness{t: t, server: shared(t)}
			w.proxy = faultproxy.New(t, w.server)
			client, err := recipes.Connect(testkit.Context(t), []string{w.proxy.Addr()}, recipes.WithSessionTimeout(sessionTimeout), brisk(), credential(owner), w.log.debug(handler))
			require.NoError(t, err)
			w.client = client
			w.ids = append(w.ids, w.otherSession(0))
			w.live()
			_, err = newMutex(t, client, "/closed").Acquire(testkit.Context(t))
			w.say(client, err)
			w.check()
		})
	}
}

// live exercises everything that logs.
func (w *witness) live() {
	t, root := w.t, testkit.Path(w.t)
	m := newMutex(t, w.client, root+"/lock", mutex.WithRevocationListener(func(*recipes.Lease) { panic("in a listener") }))
	election, err := latch.New(w.client, root+"/latch", latch.WithListener(latch.Listener{IsLeader: func(term *recipes.Lease) {
		panic(term)
	}}))
	require.NoError(t, err)
	require.NoError(t, election.Start())
	s, err := selector.New(w.client, root+"/selector", func(ctx context.Context, _ *recipes.Lease) error {
		<-ctx.Done()
		panic(context.Cause(ctx))
	}, selector.WithAutoRequeue(), selector.WithRequeueBackoff(recipes.RetryPolicy{InitialInterval: time.Millisecond}))
	require.NoError(t, err)
	require.NoError(t, s.Start())
	for range 3 {
		lease := acquire(t, m)
		term, err := election.Await(testkit.Context(t))
		require.NoError(t, err)
		w.cut()
		brief, cancel := context.WithTimeout(testkit.Context(t), 50*time.Millisecond)
		_, behind := m.Acquire(brief)
		cancel()
		_, err = stranger(t, w.server).Set(lease.Path(), []byte("__REVOKE__"), -1)
		require.NoError(t, err)
		select {
		case <-lease.Revoked(): // whose listener panics
		case <-lease.Context().Done():
		}
		w.expire()
		loss := ended(t, lease)
		queue, err := m.Participants(testkit.Context(t))
		w.say(loss, lease.Release(), behind, lease, lease.Context(), term, term.Context(), term.Release(), queue, err, m)
		acquired, err := m.TryAcquire(testkit.Context(t))
		require.NoError(t, err)
		require.NoError(t, stranger(t, w.server).Delete(acquired.Path(), -1))
		w.say(ended(t, acquired), acquired.Release(), acquired.Check())
	}
	w.proxy.Refuse(true)
	w.proxy.Cut()
	ctx, cancel := context.WithTimeout(testkit.Context(t), time.Second)
	defer cancel()
	_, err = m.Acquire(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	w.say(err)
	w.proxy.Refuse(false)
	w.say(s.Close(), election.Close(), w.client.Close())
	w.say(s, election) // not earlier, because package fmt reads the fields in use
}

// check looks for each id in every possible format.
func (w *witness) check() {
	t, logged := w.t, w.log.String()
	for _, event := range []string{"connected", "leading", "lease lost", "session lost", "panic in a callback", "suspended"} {
		require.Contains(t, logged, event, "the log works")
	}
	all := strings.ToLower(logged + w.said.String())
	require.NotContains(t, all, owner)
	seen := map[int64]bool{}
	for _, id := range w.ids {
		seen[id] = true
		raw := binary.BigEndian.AppendUint64(nil, uint64(id))
		for _, form := range []string{
			fmt.Sprint(id), fmt.Sprint(uint64(id)), fmt.Sprintf("%x", uint64(id)), strings.Trim(fmt.Sprintf("%d", raw), "[]"), strings.ToLower(base64.StdEncoding.EncodeToString(raw)),
		} {
			if before, after, found := strings.Cut(all, form); found {
				before = before[max(0, len(before)-500):]
				require.Failf(t, "a session id is shown", "id %d as %q: %s<id>%s", id, form, before, after[:min(len(after), 200)])
			}
		}
	}
	require.GreaterOrEqual(t, len(seen), 4, "sessions")
}
