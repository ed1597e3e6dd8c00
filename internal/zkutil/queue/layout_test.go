package queue_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/testkit/fixture"
	"github.com/zkrecipes/zkrecipes/internal/testkit/locks"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/recipes"
)

func TestMarkersOfContenders(t *testing.T) {
	contenders := queue.ParseContenders([]string{
		"_c_x-__READ__0000000002", "_c_y-__WRIT__0000000001", "_c_z-__READ__0000000001", "_c_q-lock-0000000000", "__WRIT__", "__READ__x",
	}, queue.ReadWriteMarkers)
	require.Len(t, contenders, 3)
	writer, under, reader := contenders[0], contenders[1], contenders[2]
	require.True(t, writer.HasMarker(queue.WriteMarker))
	require.False(t, writer.HasMarker(queue.ReadMarker))
	require.True(t, under.HasMarker(queue.ReadMarker))
	require.True(t, under.HasNumberOf(writer))
	require.False(t, reader.HasNumberOf(writer))
}

func TestCheckLayout(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		srv := fixture.NewEnsemble(t)
		s := fixture.Connect(t, srv.Config(30*time.Second))
		mutex, readWrite := fixture.MutexOn(s, "/m"), fixture.MutexOn(s, "/m")
		readWrite.Markers = queue.ReadWriteMarkers
		require.NoError(t, readWrite.CheckLayout(t.Context()), "a missing directory")
		srv.Put("/m/config", nil)
		srv.Put("/m/lock-", nil)
		require.NoError(t, readWrite.CheckLayout(t.Context()))
		srv.Put("/m/x-lock-0000000007", nil)
		require.NoError(t, mutex.CheckLayout(t.Context()))
		require.ErrorIs(t, readWrite.CheckLayout(t.Context()), zkutil.ErrOtherLayout)
		srv.Put("/m/x-__READ__0000000008", nil)
		require.ErrorIs(t, mutex.CheckLayout(t.Context()), zkutil.ErrOtherLayout)
		srv.Delete("/m/x-lock-0000000007")
		srv.Put("/m/x\u202e-lock-0000000009", nil) // other programs choose the names
		require.ErrorContains(t, readWrite.CheckLayout(t.Context()), `: "/m/x\u202e-lock-0000000009"`)
	})
}

// A mutex ignores the contenders of another kind of lock, unlike Curator's, and says so: once a minute.
func TestMutexBesideAnotherLayoutIsLogged(t *testing.T) {
	locks.Run(t, func(f *locks.Fixture) {
		log := &testkit.Log{}
		read, _ := locks.ReadWrite(f.Bubble, f.Client())
		reader := bubble.Acquire(f, read.Acquire)
		m := f.Mutex(f.Client(recipes.WithLogger(log.Logger(slog.LevelWarn))))
		line := `level=WARN msg="another kind of lock uses this path; the two do not exclude each other" path=` + locks.Path + ` znode=` + reader.Path()
		for range 3 {
			require.NoError(f, bubble.Acquire(f.T, m.Acquire).Release())
		}
		require.Equal(f, []string{line}, locks.TakeLog(log))
		bubble.Pass(time.Minute)
		require.NoError(f, bubble.Acquire(f.T, m.Acquire).Release())
		require.Equal(f, []string{line}, locks.TakeLog(log))
		require.NoError(f, reader.Release())
		f.Srv.Put(locks.Path+"/config", nil)
		bubble.Pass(time.Minute)
		require.NoError(f, bubble.Acquire(f.T, m.Acquire).Release())
		require.Empty(f, locks.TakeLog(log))
	})
}
