package chaos

import (
	"bytes"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/judge"
	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// For a peer, overlaps and lost updates are counted, separately for holders that could not know of the loss.
func TestPeerReport(t *testing.T) {
	h := told(10)
	h.Lives = nil
	for i := range h.Events {
		h.Events[i].Token, h.Events[i].Znode = 0, ""
	}
	r := JudgePeer(h)
	require.Equal(t, 10, r.Leases)
	require.Empty(t, r.Overlaps)
	require.Zero(t, r.LostUpdates)

	late := slices.IndexFunc(h.Events, func(e Event) bool { return e.What == Ended && e.Try == 105 })
	h.Events[late].At += int64(500 * time.Millisecond)
	again := slices.IndexFunc(h.Events, func(e Event) bool { return e.What == Wrote && e.Try == 106 })
	h.Events[again].Value = 105
	r = JudgePeer(h)
	require.Equal(t, map[judge.Excuse]int{judge.None: 1}, r.Overlaps)
	require.Equal(t, 1, r.LostUpdates)
	h.Faults = []Fault{{Kind: expireSession, Proc: h.Events[late].Proc, From: h.Events[late].At - int64(time.Second), To: h.Events[late].At}}
	require.Equal(t, map[judge.Excuse]int{judge.SessionExpired: 1}, JudgePeer(h).Overlaps)
}

// A long history is judged, and not given up.
func TestLongHistory(t *testing.T) {
	h := told(20_000)
	require.Empty(t, Judge(h).Violations)
	require.Empty(t, Linearize(h))
}

func TestTimeline(t *testing.T) {
	h := told(10)
	h.Faults = []Fault{{Kind: pauseClient, Proc: 1, From: 5 * second, To: 6 * second}}
	h.Events = append(h.Events, Event{What: Called, By: "never served", Path: fencedPath, At: 2 * second})
	h.Lives = append(h.Lives, &Life{Path: fencedPath + "/ghost", Created: 3000})
	h.lease(1, 500, 100*second, 101*second)
	picture := string(Timeline(h, fencedPath, 5*second))
	for d := xml.NewDecoder(strings.NewReader(picture)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	for _, shown := range []string{"client paused p1", "never served", "ghost", "token 105"} {
		require.Contains(t, picture, shown)
	}
	require.NotContains(t, picture, "token 500", "at another time")
}

// A log ends where a killed server tore it, or where the preallocated zeros begin.
func TestReadLog(t *testing.T) {
	header := proto.NewEncoder().Int32(logMagic).Int32(2).Int64(0).Body()
	// The request's number is 0 where the leader closes a session, and only there.
	request := int32(1)
	entry := func(session, zxid, at int64, op int32, body []byte) []byte {
		record := proto.NewEncoder().Int64(session).Int32(request).Int64(zxid).Int64(at).Int32(op).Raw(body).Body()
		framed := binary.BigEndian.AppendUint64(nil, 0)
		framed = binary.BigEndian.AppendUint32(framed, uint32(len(record)))
		return append(append(framed, record...), logEndOfEntry)
	}
	create := func(session, zxid int64, path string) []byte {
		return entry(session, zxid, 990+zxid, proto.OpCreate2, proto.NewEncoder().String(path).Buffer(nil).ACL(nil).Bool(true).Int32(1).Body())
	}
	remove := func(session, zxid int64, path string) []byte {
		return entry(session, zxid, 990+zxid, proto.OpDelete, proto.NewEncoder().String(path).Body())
	}
	created := create(7, 10, "/l/a")
	whole := slices.Concat(header, created, create(8, 11, "/l/b"), create(8, 12, "/l/c"), create(9, 13, "/l/d"), create(9, 14, "/l/e"),
		remove(8, 15, "/l/b"), remove(7, 16, "/l/c"), entry(9, 17, 1007, proto.OpCloseSession, nil))
	request = 0
	whole = append(whole, entry(7, 18, 1008, proto.OpCloseSession, nil)...)

	for name, end := range map[string][]byte{"zeros": make([]byte, 100), "torn": created[:len(created)-1], "nothing": nil} {
		all, err := readLog(append(bytes.Clone(whole), end...))
		require.NoError(t, err, name)
		require.Len(t, all, 9, name)
		require.Equal(t, []*Life{
			{"/l/a", 10, 1000, 1008, 18, Expired, 7, 0},
			{"/l/b", 11, 1001, 1005, 15, Deleted, 8, 0},
			{"/l/c", 12, 1002, 1006, 16, Robbed, 8, 0},
			{"/l/d", 13, 1003, 1007, 17, Closed, 9, 0},
			{"/l/e", 14, 1004, 1007, 17, Closed, 9, 0},
		}, lives(all), name)
	}
	all, err := readLog([]byte("ZKLG"))
	require.NoError(t, err)
	require.Empty(t, all)
	_, err = readLog([]byte("something else entirely"))
	require.Error(t, err)
}

// What a majority has logged may be undone by the next leader: then the numbers of a directory are given again.
func TestUndoneTransactions(t *testing.T) {
	node := func(op int32, zxid int64, path string) txn {
		return txn{zxid: zxid, op: op, body: proto.NewEncoder().String(path).Buffer(nil).ACL(nil).Bool(true).Int32(1).Body()}
	}
	create := func(zxid int64, path string) txn { return node(proto.OpCreate2, zxid, path) }
	remove := func(zxid int64, path string) txn { return node(proto.OpDelete, zxid, path) }
	const second, third = 2 << 32, 3 << 32
	first, later := create(second+1, "/l/a-0000000000"), []txn{create(third+1, "/l/c-0000000001"), create(third+2, "/l/d-0000000002")}
	before := []txn{first, remove(second+2, "/l/a-0000000000")}
	undone := []txn{create(second+3, "/l/b-0000000001"), remove(second+4, "/l/b-0000000001")}
	kept := slices.Concat(before, later)
	require.Equal(t, kept, withoutUndone(slices.Concat(before, undone, later)))

	multi := txn{zxid: third + 3, op: proto.OpMulti}
	body := proto.NewEncoder().Int32(2)
	for _, part := range []txn{create(0, "/l/e-0000000003"), remove(0, "/l/d-0000000002")} {
		body.Int32(part.op).Buffer(part.body)
	}
	multi.body = body.Body()
	whole := append(slices.Clone(kept), multi)
	all := lives(whole)
	require.Equal(t, "/l/e-0000000003", all[len(all)-1].Path)
	require.Equal(t, int64(third+3), all[len(all)-2].GoneBy)

	refused := txn{zxid: third + 4, op: proto.OpMulti, body: proto.NewEncoder().Int32(2).
		Int32(proto.OpCreate).Buffer(create(0, "/l/f-0000000004").body).Int32(opError).Buffer(proto.NewEncoder().Int32(noNode).Body()).Body()}
	require.Equal(t, all, lives(append(slices.Clone(whole), refused)), "it creates nothing")

	_, err := partsOf(txn{op: proto.OpMulti, body: []byte{0, 0, 0, 9}})
	require.Error(t, err)

	for name, kept := range map[string][]txn{
		"the same, nothing lost":            slices.Concat(before, undone, []txn{create(third+1, "/l/c-0000000002")}),
		"another directory":                 {create(1, "/l/a-0000000000"), create(2, "/m/a-0000000000")},
		"a new directory":                   {create(1, "/l/a-0000000000"), remove(2, "/l"), create(3, "/l/a-0000000000")},
		"a directory that is created again": {create(1, "/l/a-0000000000"), node(proto.OpCreateContainer, 2, "/l"), create(3, "/l/a-0000000000")},
		"readers under a writer":            {create(1, "/l/a-__WRIT__0000000000"), create(2, "/l/b-__READ__0000000000")},
		"no numbers":                        {create(1, "/l/a"), create(2, "/l/b")},
		"in a transaction":                  whole,
		"in a refused transaction":          append(slices.Clone(whole), refused, create(third+5, "/l/f-0000000004")),
	} {
		require.Equal(t, kept, withoutUndone(slices.Clone(kept)), name)
	}
}

// The leader logs a refusal in place of the request, and later operations as inconsistent.
func TestRefusals(t *testing.T) {
	multi := func(session int64, op int32, errs ...int32) txn {
		body := proto.NewEncoder().Int32(int32(len(errs)) + 1)
		check := proto.NewEncoder().String("/l/a").Int32(-1).Body()
		body.Int32(proto.OpCheck).Buffer(check)
		for _, err := range errs {
			body.Int32(opError).Buffer(proto.NewEncoder().Int32(err).Body())
		}
		return txn{session: session, at: 1000, op: op, body: body.Body()}
	}
	require.Equal(t, []Refusal{{2, 1000}, {3, 1000}}, refusals([]txn{
		multi(1, proto.OpMulti), multi(2, proto.OpMulti, noNode, -2), multi(3, proto.OpMulti, 0, noNode),
		multi(4, proto.OpMulti, -103, -2), multi(5, proto.OpCreate2, noNode),
		{session: 6, op: proto.OpMulti, body: []byte{0, 0, 0, 9}},
	}))
}
