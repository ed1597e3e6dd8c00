package faultproxy_test

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/faultproxy"
)

func TestCountsTellRequestsEventsAndBytes(t *testing.T) {
	l := newLine(t)
	l.proxy.ResetCounts()
	path := newPath()
	require.NoError(t, l.create(path))
	_, err := l.conn.CreateContainer(path+"-c", []byte("x"), zk.FlagContainer, zk.WorldACL(zk.PermAll))
	require.NoError(t, err)
	_, _, events, err := l.conn.GetW(path)
	require.NoError(t, err)
	_, err = l.conn.Set(path, []byte("y"), -1)
	require.NoError(t, err)
	receive(t, events)
	_, _, err = l.conn.Children(path)
	require.NoError(t, err)
	_, err = l.conn.Sync(path)
	require.NoError(t, err)
	_, err = l.conn.Multi(&zk.CheckVersionRequest{Path: path, Version: -1})
	require.NoError(t, err)
	require.NoError(t, l.conn.Delete(path, -1))

	c := l.proxy.Counts()
	require.Equal(t, map[string]int{
		"create": 1, "createContainer": 1, "getData": 1, "setData": 1, "getChildren2": 1, "sync": 1, "multi": 1, "delete": 1,
	}, c.Requests)
	require.Equal(t, 8, c.Total())
	require.Equal(t, 1, c.Events)
	require.Positive(t, c.BytesUp)
	require.Positive(t, c.BytesDown)

	require.Eventually(t, func() bool { return l.proxy.Counts().Pings > 0 }, patience, moment)
	l.proxy.ResetCounts()
	require.Empty(t, l.proxy.Counts().Requests)
}

func TestLogHasTheRequestsInOrder(t *testing.T) {
	l := newLine(t)
	path := newPath()
	require.NoError(t, l.create(newPath()))
	l.proxy.Record(true)
	require.NoError(t, l.create(path))
	_, err := l.conn.Multi(
		&zk.CheckVersionRequest{Path: path, Version: -1},
		&zk.CreateRequest{Path: path + "-2", Data: []byte("x"), Acl: zk.WorldACL(zk.PermAll)},
		&zk.SetDataRequest{Path: path, Data: []byte("y"), Version: -1},
		&zk.DeleteRequest{Path: path, Version: -1},
	)
	require.NoError(t, err)

	var log []faultproxy.Request
	for _, r := range l.proxy.Requests() {
		if r.Op != "ping" {
			log = append(log, r)
		}
	}
	require.Len(t, log, 2)
	require.Equal(t, "create", log[0].Op)
	require.Equal(t, path, log[0].Path)
	require.Equal(t, l.conn.SessionID(), log[0].Session)
	require.False(t, log[1].Time.Before(log[0].Time))
	require.Equal(t, []faultproxy.Part{
		{Op: "check", Path: path},
		{Op: "create", Path: path + "-2"},
		{Op: "setData", Path: path},
		{Op: "delete", Path: path},
	}, log[1].Parts)
	require.True(t, faultproxy.MultiOf("check")(log[1]))
	require.False(t, faultproxy.MultiOf("getData")(log[1]))

	l.proxy.Record(false)
	require.Empty(t, l.proxy.Requests())
}

func TestRequestsNeverPrintTheirSession(t *testing.T) {
	r := faultproxy.Request{Op: "create", Path: "/a", Session: 72057594037927936}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		for _, value := range []any{r, &r, []faultproxy.Request{r}} {
			text := fmt.Sprintf(format, value)
			require.NotContains(t, text, strconv.FormatInt(r.Session, 10))
			require.NotContains(t, text, strconv.FormatInt(r.Session, 16))
		}
	}
}
