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
		lock:  true, items: 10, left: 0, recorded: 10,
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
	require.Equal(t, `
  sold                          10   buyers who got an item
  refused                       20   buyers refused because the item is sold out
  unanswered                     0   buyers who gave up
  sales recorded                10   rows in the table of sales
  oversold                       0   items sold that did not exist
  lost updates                   0   sales that another purchase overwrote in the stock
  stale writes refused           1   by the fencing token
  retries                        1   requests repeated after a 503 or a broken connection
  throughput                  15/s   buyers answered, in 2s
  wait, median                50ms   from a buyer's request to the final answer
  wait, 99th percentile       99ms   the same

OK: nothing oversold, nothing lost. 10 of 10 items were sold, each of them once.

stock: sold 10, refused 20, oversold 0, stock left 0
`, out.String())
}

func TestVerdictNamesEveryFault(t *testing.T) {
	r := sound()
	r.sold, r.refused, r.recorded, r.lock = 12, 17, 12, false
	require.Equal(t, "NOT OK: 2 buyers were promised an item that did not exist; 2 sales are missing from the stock; "+
		"1 buyers got no answer. The lock prevents that.", r.verdict())
	r = sound()
	r.recorded = 9
	require.Equal(t, "NOT OK: the stock, the sales and the answers do not agree.", r.verdict())
}

func TestScenario(t *testing.T) {
	o := options{buyers: 30, items: 10, processes: 3, think: 2 * time.Millisecond, lock: true}
	require.Equal(t, `30 buyers ask a shop for 10 items, all at once. The shop runs in 3 processes.
Each purchase reads the stock from SQLite, pauses for up to 2ms, and writes back the stock minus one.
A lock in ZooKeeper lets one purchase at a time do so, in all processes together.
So exactly 10 buyers have to get an item.
`, scenario(o, "SQLite", "ZooKeeper"))
	o.cohort, o.atOnce = true, 5
	require.Contains(t, scenario(o, "SQLite", "ZooKeeper"), "The buyers of one process form a cohort")
	require.Contains(t, scenario(o, "SQLite", "ZooKeeper"), ", 5 at a time. ")
	o.lock = false
	require.Contains(t, scenario(o, "SQLite", "ZooKeeper"), "\nNO LOCK: ")
}

type fullDisk struct{}

var errFull = errors.New("disk full")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

func TestReportShowsAFailedWrite(t *testing.T) {
	require.ErrorIs(t, sound().write(fullDisk{}), errFull)
}
