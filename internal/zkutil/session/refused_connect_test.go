package session_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// A server that is no host:port ends a session before it begins, and leaves no goroutine.
func TestServersThatAreNone(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		cfg := fixture.NewEnsemble(t).Config(6 * time.Second)
		cfg.Servers = []string{"a:b:c"}
		_, err := session.Connect(t.Context(), cfg)
		require.ErrorContains(t, err, "a:b:c")
		_, err = session.Open(cfg)
		require.ErrorContains(t, err, "a:b:c")
	})
}

// A refused credential ends Connect with the scheme, never with the credential, and the session with it.
func TestRefusedCredentialEndsConnect(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(6 * time.Second)
		cfg.Auth = []session.Auth{{Scheme: "digest", Credential: []byte("user:secret")}}
		srv.Inject(func(r zktest.Request) zktest.Fault {
			if r.Op == zktest.OpAuth {
				return zktest.Fault{Refusal: zktest.RefuseNoAuth}
			}
			return zktest.Fault{}
		})
		_, err := session.Connect(t.Context(), cfg)
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.ErrorContains(t, err, `authenticate with scheme "digest": `)
		require.NotContains(t, err.Error(), "secret")
		require.Empty(t, srv.Sessions())
	})
}

// A credential without an answer keeps neither Connect from its end, nor Close.
func TestUnansweredCredential(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		cfg := srv.Config(6 * time.Second)
		cfg.Auth = []session.Auth{{Scheme: "digest", Credential: []byte("a:a")}}
		srv.Inject(func(r zktest.Request) zktest.Fault {
			return fixture.Cut(r.Op == zktest.OpAuth, zktest.AnswerLost)
		})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		_, err := session.Connect(ctx, cfg)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(start), 10*time.Second)

		s, err := session.Open(cfg)
		require.NoError(t, err)
		bubble.Pass(time.Second)
		start = time.Now()
		require.NoError(t, s.Close())
		require.Less(t, time.Since(start), 10*time.Second)
	})
}

// A late proof counts for the session that wrote it alone.
func TestLateProofOfAnotherSession(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(6*time.Second))
		e := bubble.Acquire(t, fixture.MutexOn(s, "/m").Acquire)
		bubble.Pass(time.Second)
		before := s.Health().LastProof
		bubble.Pass(100 * time.Millisecond)
		s.NoteLateProof(fixture.SessionID(s)+1, time.Now())
		require.Equal(t, before, s.Health().LastProof)
		s.NoteLateProof(fixture.SessionID(s), time.Now())
		require.Equal(t, time.Now(), s.Health().LastProof)
		require.NoError(t, e.Leave())
	})
}
