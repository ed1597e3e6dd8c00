package main

import (
	"bufio"
	"fmt"
	"io"
	"time"
)

// report sets what the buyers were told against what the database says.
type report struct {
	tally
	lock      bool
	cohort    bool
	zooKeeper string // which one the locks are in
	database  string
	items     int // stock at the beginning
	processes int
	left      int // stock at the end
	recorded  int // rows in the table of sales
}

// oversold is how many buyers were promised an item that never existed.
func (r report) oversold() int { return max(0, r.sold-r.items) }

// lostUpdates is how many sales the stock knows nothing of, because a later write
// put back what an earlier one had taken off.
func (r report) lostUpdates() int { return max(0, r.sold-(r.items-r.left)) }

// sound reports whether the sale went as a sale has to: every buyer answered, each
// item sold once and recorded, the stock in agreement with the sales.
func (r report) sound() bool {
	return r.oversold() == 0 && r.lostUpdates() == 0 &&
		r.sold+r.refused == r.buyers &&
		r.recorded == r.sold &&
		r.left == r.items-r.sold &&
		(r.left == 0 || r.refused == 0)
}

// throughput is in buyers answered per second.
func (r report) throughput() float64 {
	return float64(r.sold+r.refused) / max(r.elapsed, time.Nanosecond).Seconds()
}

func (r report) wait(percentile float64) time.Duration {
	us := r.waits.ValueAtPercentile(percentile)
	return (time.Duration(us) * time.Microsecond).Round(100 * time.Microsecond)
}

// write prints the report. Its last line is for programs, and does not change.
func (r report) write(w io.Writer) error {
	how := "one lock for each goods number on " + r.zooKeeper
	switch {
	case r.lock && r.cohort:
		how += ", a cohort in each process"
	case !r.lock:
		how = "NO LOCK"
	}
	out := bufio.NewWriter(w) // keeps the first error for Flush
	_, _ = fmt.Fprintf(out, "%d buyers, %d items, %d service processes, %s, %s\n\n",
		r.buyers, r.items, r.processes, r.database, how)
	for _, line := range []struct {
		name    string
		value   any
		meaning string
	}{
		{"sold", r.sold, "buyers told so"},
		{"refused", r.refused, "buyers told that it is sold out"},
		{"unanswered", r.unanswered, "buyers who gave up"},
		{"sales recorded", r.recorded, "rows in the table of sales"},
		{"oversold", r.oversold(), "sold beyond the items there were"},
		{"lost updates", r.lostUpdates(), "sales that the stock knows nothing of"},
		{"stale writes refused", r.stale, "stopped by their fencing token"},
		{"retries", r.retries, "requests sent again after a 503 or a broken connection"},
		{"throughput", fmt.Sprintf("%.0f/s", r.throughput()), fmt.Sprintf("buyers answered, in %s", r.elapsed.Round(time.Millisecond))},
		{"wait p50", r.wait(50), "from a buyer's request to the final answer"},
		{"wait p99", r.wait(99), "the same"},
	} {
		_, _ = fmt.Fprintf(out, "  %-20s %10v   %s\n", line.name, line.value, line.meaning)
	}
	_, _ = fmt.Fprintf(out, "\nstock: sold %d, refused %d, oversold %d, stock left %d\n",
		r.sold, r.refused, r.oversold(), r.left)
	return out.Flush()
}
