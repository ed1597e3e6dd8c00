package ops_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/bubble"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/ops"
)

// endedLine is a connection that ended at a request, some time after the previous one.
type endedLine struct {
	after      time.Duration
	isUntested bool // the connection answered nothing else
	isBehind   bool // another request was unanswered before
	isAnswer   bool // the request was answered
	session    int64
}

// A request is blamed for a row of ended connections only if the connections answered something else, over a session timeout.
func TestRequestBlamedForEndedConnections(t *testing.T) {
	const timeout = 24 * time.Second
	row := func(n int, line endedLine) (lines []endedLine) {
		for range n {
			lines = append(lines, line)
		}
		return lines
	}
	join := func(rows ...[]endedLine) (all []endedLine) {
		for _, r := range rows {
			all = append(all, r...)
		}
		return all
	}
	for name, c := range map[string]struct {
		lines    []endedLine
		isBlamed bool
	}{
		"a row":                     {row(10, endedLine{after: 3 * time.Second}), true},
		"too short":                 {row(10, endedLine{after: time.Second}), false},
		"too few":                   {row(7, endedLine{after: 5 * time.Second}), false},
		"many in a short time":      {row(500, endedLine{after: 40 * time.Millisecond}), false},
		"nothing else was answered": {row(30, endedLine{after: 3 * time.Second, isUntested: true}), false},
		"an earlier request failed": {row(30, endedLine{after: 3 * time.Second, isBehind: true}), false},
		"once answered":             {join([]endedLine{{isAnswer: true}}, row(30, endedLine{after: 3 * time.Second})), false},
		"two outages":               {join(row(7, endedLine{after: 300 * time.Millisecond}), []endedLine{{after: time.Hour}}, row(7, endedLine{after: 300 * time.Millisecond})), false},
		"another session":           {join(row(7, endedLine{after: 5 * time.Second, session: 1}), row(2, endedLine{after: 5 * time.Second, session: 2})), false},
	} {
		t.Run(name, func(t *testing.T) {
			suspects, now := ops.NewSuspects(), time.Now()
			var err error
			for i, line := range c.lines {
				now = now.Add(line.after)
				o := ops.Outcome{Err: zk.ErrConnectionClosed, At: now, Within: timeout, Epoch: uint64(i + 1), IsTested: !line.isUntested, Session: line.session}
				if line.isAnswer {
					o.Err = zk.ErrBadVersion
				}
				o.IsEnd = ops.IsEndAt(o.Err, 0) && !line.isBehind
				err = suspects.Judge(proto.OpSetData, o)
			}
			require.Equal(t, c.isBlamed, zkutil.IsAny(err, zkutil.ErrUnsupported), err)
		})
	}
}

// After the blame no such request is sent for a while. Then the next one shows whether the servers know the operation by now.
func TestBlamedOperationIsLeftAlone(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		s := ops.NewSuspects()
		refused := errors.New("unknown error: -6")
		require.NoError(t, s.Judge(proto.OpSetData, ops.Outcome{}))
		require.Equal(t, refused, s.Judge(proto.OpCreate2, ops.Outcome{Err: refused}), "the client does without it")
		isSuspect, err := s.Check(proto.OpSetData)
		require.False(t, isSuspect)
		require.NoError(t, err)

		err = s.Judge(proto.OpSetData, ops.Outcome{Err: refused})
		require.ErrorIs(t, err, zkutil.ErrUnsupported)
		require.ErrorIs(t, err, refused)
		require.ErrorContains(t, err, "setData")
		isSuspect, again := s.Check(proto.OpSetData)
		require.True(t, isSuspect)
		require.Equal(t, err, again)
		_, other := s.Check(proto.OpDelete)
		require.NoError(t, other)
		bubble.Pass(5*time.Second - 1)
		_, again = s.Check(proto.OpSetData)
		require.Equal(t, err, again)
		bubble.Pass(1)
		_, again = s.Check(proto.OpSetData)
		require.NoError(t, again)
		require.NoError(t, s.Judge(proto.OpSetData, ops.Outcome{}))
		isSuspect, again = s.Check(proto.OpSetData)
		require.False(t, isSuspect)
		require.NoError(t, again)
	})
}

// A connection is tested by a read at which none ended.
func TestReadThatTestsAConnection(t *testing.T) {
	s := ops.NewSuspects()
	for _, want := range []int32{proto.OpExists, proto.OpGetData, proto.OpGetChildren2} {
		require.Equal(t, want, s.TestOp())
		end := ops.Outcome{Err: zk.ErrConnectionClosed, IsEnd: true, At: time.Now(), Within: time.Second}
		require.Equal(t, zk.ErrConnectionClosed, s.Judge(want, end))
		isSuspect, err := s.Check(want)
		require.True(t, isSuspect)
		require.NoError(t, err)
	}
	require.NoError(t, s.Judge(proto.OpGetData, ops.Outcome{}))
	require.EqualValues(t, proto.OpGetData, s.TestOp())
	_ = s.Judge(proto.OpGetData, ops.Outcome{Err: errors.New("unknown error: -6")})
	require.EqualValues(t, proto.OpGetChildren2, s.TestOp())
}

// Only the end of a connection soon after a request counts, once for each connection. Sessions that end with their connections are one row.
func TestEndsThatCount(t *testing.T) {
	require.True(t, ops.IsEndAt(zk.ErrConnectionClosed, time.Second))
	require.False(t, ops.IsEndAt(zk.ErrConnectionClosed, time.Second+1))
	require.False(t, ops.IsEndAt(nil, 0))
	require.False(t, ops.IsEndAt(zk.ErrNoNode, 0))
	start := time.Now()
	for _, test := range []struct {
		connections, requests int
		sessions              int64
		isBound               bool
		every                 time.Duration
		isBlamed              bool
	}{
		{connections: 8, requests: 1, every: 10 * time.Second, isBlamed: true},
		{connections: 8, requests: 1, every: 10*time.Second + 1, isBlamed: false}, // far apart
		{connections: 7, requests: 5, every: 10 * time.Second, isBlamed: false},
		{connections: 8, requests: 5, every: 10 * time.Second, isBlamed: true},
		{connections: 8, requests: 1, sessions: 1, every: 10 * time.Second, isBlamed: false},
		{connections: 8, requests: 1, sessions: 1, isBound: true, every: 10 * time.Second, isBlamed: true},
		{connections: 8, requests: 1, every: 10*time.Second/7 + 1, isBlamed: true},
		{connections: 8, requests: 1, every: 10 * time.Second / 7, isBlamed: false}, // a nanosecond less than the session timeout
	} {
		s := ops.NewSuspects()
		var err error
		for i := range test.connections {
			for range test.requests {
				err = s.Judge(proto.OpSetData, ops.Outcome{
					Err: zk.ErrConnectionClosed, IsEnd: true, At: start.Add(time.Duration(i) * test.every), Within: 10 * time.Second,
					Epoch: uint64(i + 1), IsTested: true, Session: int64(i) * test.sessions, IsBound: test.isBound,
				})
			}
		}
		require.Equal(t, test.isBlamed, errors.Is(err, zkutil.ErrUnsupported), "%+v", test)
		require.ErrorIs(t, err, zk.ErrConnectionClosed)
	}
}
