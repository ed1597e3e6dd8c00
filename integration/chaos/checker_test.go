package chaos

import (
	"bytes"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// told is a history of leases one after another, a second each, by four processes.
func told(leases int) *History {
	h := &History{}
	for i := range leases {
		at := int64(i+1) * int64(time.Second)
		h.lease(i%4+1, int64(100+i), at, at+int64(900*time.Millisecond))
	}
	return h
}

// lease adds one, with a write behind it.
func (h *History) lease(proc int, token, from, to int64) {
	ms := int64(time.Millisecond)
	by, znode := fmt.Sprintf("p%d", proc), fmt.Sprintf("%s/znode-%d", fencedPath, token)
	add := func(at int64, e Event) {
		e.At, e.Wall, e.By, e.Proc, e.Path, e.Try, e.Token = at, at/ms, by, proc, fencedPath, int(token), token
		h.Events = append(h.Events, e)
	}
	add(from-10*ms, Event{What: Called})
	add(from, Event{What: Granted, Znode: znode})
	add(from+1*ms, Event{What: Claiming})
	add(from+2*ms, Event{What: Claimed})
	add(from+3*ms, Event{What: Writing, Value: token})
	add(from+4*ms, Event{What: Wrote, Value: token})
	add(from+5*ms, Event{What: Led, Value: from + 4*ms})
	add(from+6*ms, Event{What: Marked, Zxid: token})
	add(to-ms, Event{What: Releasing})
	add(to, Event{What: Ended, Text: recipes.ErrReleased.Error()})
	add(to+ms, Event{What: Released})
	h.Lives = append(h.Lives, &Life{Path: znode, Token: token, Created: (from - 5*ms) / ms, Gone: to / ms})
}

// event returns one that a planted defect changes.
func (h *History) event(what What, token int64) *Event {
	for i := range h.Events {
		if h.Events[i].What == what && h.Events[i].Token == token {
			return &h.Events[i]
		}
	}
	return nil
}

func TestCheckersAcceptWhatIsRight(t *testing.T) {
	h := told(40)
	v := Judge(h)
	require.Empty(t, v.Violations)
	require.Equal(t, 40, v.Leases)
	require.Equal(t, 40, v.Wrote)
	require.Empty(t, Linearize(h))
}

// Each planted defect is found by the check that is for it.
func TestCheckersFindPlantedDefects(t *testing.T) {
	const second, ms = int64(time.Second), int64(time.Millisecond)
	tests := map[string]struct {
		plant  func(*History)
		judge  string // part of a violation; "": none
		linear string
	}{
		"a context that ends late": {
			func(h *History) { h.event(Ended, 105).At += second }, "is granted", "",
		},
		"a context that never ends": {
			func(h *History) { h.event(Ended, 105).What = "forgotten" }, "has not ended", "",
		},
		"a lower token for a later holder": {
			func(h *History) { h.lease(1, 50, 60*second, 61*second) }, "before p1 has 50", "lock",
		},
		"one token for two": {
			func(h *History) { h.lease(2, 105, 60*second, 61*second) }, "given twice", "lock",
		},
		"a grant while a znode is ahead": {
			func(h *History) { h.Lives[5].Gone += 1500 }, "is ahead", "lock",
		},
		"a znode that stays": {
			func(h *History) { h.Lives[5].Gone = 0 }, "is ahead", "lock",
		},
		"a lease without a znode": {
			func(h *History) { h.Lives[5].Path = "/elsewhere" }, "do not tell", "lock",
		},
		"a lost update": {
			func(h *History) { h.event(Wrote, 106).Value = 105 }, "an update is lost", "",
		},
		"a stale claim that the row takes": {
			func(h *History) {
				late := *h.event(Claiming, 105)
				done := *h.event(Claimed, 105)
				late.At, done.At = 60*second, 60*second+ms
				h.Events = append(h.Events, late, done)
			}, "", "row",
		},
		"a good claim that the row refuses": {
			func(h *History) { h.event(Claimed, 105).What = Refused }, "", "row",
		},
		"a stale write of the znode": {
			func(h *History) { h.event(Marked, 105).Zxid = 1000 }, "writes the znode after", "",
		},
		"a leader who is none": {
			func(h *History) { e := h.event(Led, 105); e.At += 2 * second; e.Value += 2 * second }, "says that it leads", "",
		},
		"a row that does not answer": {
			func(h *History) { h.event(Wrote, 105).What = Unsure }, "no answer", "",
		},
		"goroutines left": {
			func(h *History) { h.Events = append(h.Events, Event{What: Left, Text: "one"}) }, "leaves goroutines", "",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := told(10)
			tt.plant(h)
			require.Contains(t, fmt.Sprint(Judge(h).Violations), tt.judge)
			require.Contains(t, fmt.Sprint(Linearize(h)), tt.linear)
			if tt.judge == "" {
				require.Empty(t, Judge(h).Violations)
			}
			if tt.linear == "" {
				require.Empty(t, Linearize(h))
			}
		})
	}
}

// What somebody else does behind the holder's back is counted, not held against it.
func TestExcuses(t *testing.T) {
	for _, kind := range []string{pauseClient, expireSession, deleteZnode} {
		h := told(10)
		late := h.event(Ended, 105)
		late.At += int64(time.Second)
		at := late.At - int64(time.Second)
		h.Faults = []Fault{{Kind: kind, Proc: late.Proc, Znode: fencedPath + "/znode-105", From: at, To: at + int64(time.Second)}}
		v := Judge(h)
		require.Empty(t, v.Violations, kind)
		require.Equal(t, 1, v.Excused[kind])

		h.Faults[0].Proc, h.Faults[0].Znode = late.Proc%4+1, "/another" // it hit somebody else
		require.NotEmpty(t, Judge(h).Violations, kind)
	}
}

// A long history is judged, and not given up.
func TestLongHistory(t *testing.T) {
	h := told(20_000)
	require.Empty(t, Judge(h).Violations)
	require.Empty(t, Linearize(h))
}

func TestTimelineIsWellFormed(t *testing.T) {
	h := told(10)
	h.Faults = []Fault{{Kind: pauseClient, Proc: 1, From: int64(5 * time.Second), To: int64(6 * time.Second)}}
	picture := Timeline(h, fencedPath, int64(5*time.Second))
	for d := xml.NewDecoder(bytes.NewReader(picture)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
	}
	require.Contains(t, string(picture), "client paused p1")
}

// A log ends where a killed server tore it, or where the preallocated zeros begin.
func TestReadLog(t *testing.T) {
	header := proto.NewEncoder().Int32(logMagic).Int32(2).Int64(0).Body()
	entry := func(session, zxid, at int64, op int32, body []byte) []byte {
		record := proto.NewEncoder().Int64(session).Int32(1).Int64(zxid).Int64(at).Int32(op).Raw(body).Body()
		framed := binary.BigEndian.AppendUint64(nil, 0)
		framed = binary.BigEndian.AppendUint32(framed, uint32(len(record)))
		return append(append(framed, record...), logEndOfEntry)
	}
	created := entry(7, 10, 1000, proto.OpCreate2, proto.NewEncoder().String("/l/a").Buffer(nil).ACL(nil).Bool(true).Int32(1).Body())
	other := entry(8, 11, 1001, proto.OpCreate2, proto.NewEncoder().String("/l/b").Buffer(nil).ACL(nil).Bool(true).Int32(2).Body())
	deleted := entry(8, 12, 1002, proto.OpDelete, proto.NewEncoder().String("/l/b").Body())
	closed := entry(7, 13, 1003, proto.OpCloseSession, nil)
	whole := bytes.Join([][]byte{header, created, other, deleted, closed}, nil)

	for name, end := range map[string][]byte{"zeros": make([]byte, 100), "torn": created[:len(created)-1], "nothing": nil} {
		all, err := readLog(append(bytes.Clone(whole), end...))
		require.NoError(t, err, name)
		require.Len(t, all, 4, name)
		require.Equal(t, []*Life{{"/l/a", 10, 1000, 1003}, {"/l/b", 11, 1001, 1002}}, lives(all), name)
	}
	_, err := readLog([]byte("something else entirely"))
	require.Error(t, err)
}
