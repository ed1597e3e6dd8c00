package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/stretchr/testify/require"
)

// sound is a sale of ten items to thirty buyers as it should be.
func sound() report {
	waits := hdrhistogram.New(1, time.Hour.Microseconds(), 3)
	for ms := range int64(100) {
		_ = waits.RecordValue((ms + 1) * 1000)
	}
	return report{
		tally: tally{buyers: 30, sold: 10, refused: 20, elapsed: 2 * time.Second, waits: waits},
		lock:  true, zooKeeper: "ZooKeeper", database: "SQLite", items: 10, processes: 3, left: 0, recorded: 10,
	}
}

func TestReport(t *testing.T) {
	for _, tt := range []struct {
		name     string
		change   func(*report)
		sound    bool
		oversold int
		lost     int
		line     string
	}{
		{
			"sold out", func(*report) {}, true, 0, 0,
			"stock: sold 10, refused 20, oversold 0, stock left 0",
		},
		{
			"something left", func(r *report) { r.items, r.left, r.sold, r.refused, r.recorded = 40, 10, 30, 0, 30 }, true, 0, 0,
			"stock: sold 30, refused 0, oversold 0, stock left 10",
		},
		{
			"stale writes refused do no harm", func(r *report) { r.stale = 2 }, true, 0, 0,
			"stock: sold 10, refused 20, oversold 0, stock left 0",
		},
		{
			"oversold", func(r *report) { r.sold, r.refused, r.recorded = 12, 18, 12 }, false, 2, 2,
			"stock: sold 12, refused 18, oversold 2, stock left 0",
		},
		{
			"lost updates", func(r *report) { r.left, r.items = 3, 12 }, false, 0, 1,
			"stock: sold 10, refused 20, oversold 0, stock left 3",
		},
		{
			"stock below nothing", func(r *report) { r.left = -2; r.sold, r.refused, r.recorded = 12, 18, 12 }, false, 2, 0,
			"stock: sold 12, refused 18, oversold 2, stock left -2",
		},
		{
			"sold without a record", func(r *report) { r.recorded = 9 }, false, 0, 0,
			"stock: sold 10, refused 20, oversold 0, stock left 0",
		},
		{
			"taken off without a sale", func(r *report) { r.sold, r.refused, r.recorded = 9, 21, 9 }, false, 0, 0,
			"stock: sold 9, refused 21, oversold 0, stock left 0",
		},
		{
			"refused with something left", func(r *report) { r.sold, r.refused, r.recorded, r.left = 9, 21, 9, 1 }, false, 0, 0,
			"stock: sold 9, refused 21, oversold 0, stock left 1",
		},
		{
			"a buyer without answer", func(r *report) { r.refused, r.unanswered = 19, 1 }, false, 0, 0,
			"stock: sold 10, refused 19, oversold 0, stock left 0",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := sound()
			tt.change(&r)
			require.Equal(t, tt.sound, r.sound())
			require.Equal(t, tt.oversold, r.oversold(), "oversold")
			require.Equal(t, tt.lost, r.lostUpdates(), "lost updates")
			var out strings.Builder
			require.NoError(t, r.write(&out))
			require.True(t, strings.HasSuffix(out.String(), "\n"+tt.line+"\n"), out.String())
		})
	}
}

func TestReportInFull(t *testing.T) {
	r := sound()
	r.stale, r.retries = 1, 1
	var out strings.Builder
	require.NoError(t, r.write(&out))
	require.Equal(t, `30 buyers, 10 items, 3 service processes, SQLite, one lock for each goods number on ZooKeeper

  sold                         10   buyers told so
  refused                      20   buyers told that it is sold out
  unanswered                    0   buyers who gave up
  sales recorded               10   rows in the table of sales
  oversold                      0   sold beyond the items there were
  lost updates                  0   sales that the stock knows nothing of
  stale writes refused          1   stopped by their fencing token
  retries                       1   requests sent again after a 503 or a broken connection
  throughput                 15/s   buyers answered, in 2s
  wait p50                   50ms   from a buyer's request to the final answer
  wait p99                   99ms   the same

stock: sold 10, refused 20, oversold 0, stock left 0
`, out.String())

	r.cohort = true
	out.Reset()
	require.NoError(t, r.write(&out))
	require.Contains(t, out.String(), "SQLite, one lock for each goods number on ZooKeeper, a cohort in each process\n")

	r.lock = false
	out.Reset()
	require.NoError(t, r.write(&out))
	require.Contains(t, out.String(), "SQLite, NO LOCK\n")
}

type fullDisk struct{}

var errFull = errors.New("disk full")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestReportTellsOfAFailedWrite(t *testing.T) {
	require.ErrorIs(t, sound().write(fullDisk{}), errFull)
}
