package ops_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
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
