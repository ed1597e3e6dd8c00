package dial

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// While a hold has to be saved, a server that was silent a short time ago gets less than the full patience, but enough for a handshake as slow
// as the latest one. The only server, and every server at other times, gets all of it.
func TestPatienceWithSilentServers(t *testing.T) {
	const full = 4 * time.Second
	testkit.Bubble(t, func(t *testing.T) {
		owner := &testOwner{patience: full, isSaving: true}
		d := New(t.Context(), Config{}, owner)
		requirePatience := func(expected time.Duration, isFull bool, server string) {
			t.Helper()
			limit, wasFull := d.handshakePatience(server)
			require.Equal(t, expected, limit)
			require.Equal(t, isFull, wasFull)
		}
		d.NoteSilence("a:1")
		requirePatience(full, true, "a:1")
		requirePatience(full, true, "a:1")
		requirePatience(full, true, "b:1")
		requirePatience(full/HurryDivisor, false, "a:1")
		for took, expected := range map[time.Duration]time.Duration{full / 9: full / HurryDivisor, full / 3: full / 3 * 2, full: full} {
			d.patience.noteAnswer(took, false)
			requirePatience(full, true, "b:1")
			requirePatience(expected, false, "a:1")
		}
		owner.isSaving = false
		requirePatience(full, true, "b:1")
		requirePatience(full, true, "a:1")

		owner.isSaving = true
		d.patience.noteAnswer(0, false)
		pass(2*full - 1)
		d.NoteSilence("c:1")
		requirePatience(full, true, "b:1")
		requirePatience(full/HurryDivisor, false, "a:1")
		pass(1)
		requirePatience(full, true, "b:1")
		requirePatience(full, true, "a:1")
		requirePatience(full/HurryDivisor, false, "c:1")
		pass(2 * full)
		d.NoteSilence("d:1")
		require.Len(t, d.patience.silentAt, 1, "old silences are forgotten")
	})
}

// Once the owner refuses dials, no socket is opened, neither for a handshake nor for a question.
func TestNoDialAgainstTheOwner(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		certificate, _ := issue(t, "zk1")
		server := newTLSServer(t, certificate)
		refusal := errors.New("closed")
		d := server.dialer(&testOwner{patience: time.Second, refusal: refusal}, nil, false)
		require.NoError(t, d.hosts.Init([]string{"zk1:2281"}))
		next, _ := d.hosts.Next()
		_, _, err := d.Dial("tcp", next)
		require.ErrorIs(t, err, refusal)
		_, err = d.Open("tcp", next, time.Second)
		require.ErrorIs(t, err, refusal)
		require.Empty(t, server.dialed)
	})
}

// Only a server that had full patience, and let it pass, is silent and counts as slow. A handshake of the session ends the row.
func TestSlowHandshakes(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		d := New(t.Context(), Config{}, &testOwner{patience: time.Second, isSaving: true})
		d.noteTimeout("a:1", false, os.ErrDeadlineExceeded)
		d.noteTimeout("a:1", true, errors.New("refused"))
		require.Zero(t, d.SlowHandshakes())
		require.Empty(t, d.patience.silentAt)
		for n := range 3 {
			require.Equal(t, n, d.SlowHandshakes())
			d.noteTimeout("a:1", true, os.ErrDeadlineExceeded)
			require.Contains(t, d.patience.silentAt, "a:1")
		}
		d.patience.noteAnswer(time.Second, true)
		require.Equal(t, 3, d.SlowHandshakes(), "the session was expired")
		d.patience.noteAnswer(time.Second, false)
		require.Zero(t, d.SlowHandshakes())
	})
}
