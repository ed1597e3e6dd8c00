package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"time"
)

// scenario explains the demo to a first-time reader.
func scenario(o options, database, zooKeeper string) string {
	crowd := "all at once"
	if o.atOnce > 0 {
		crowd = fmt.Sprintf("%d at a time", o.atOnce)
	}
	text := fmt.Sprintf(`%d buyers ask a shop for %d items, %s. The shop runs in %d processes.
Each purchase reads the stock from %s, pauses for up to %s, and writes back the stock minus one.
`, o.buyers, o.items, crowd, o.processes, database, o.think)
	if !o.lock {
		return text + "NO LOCK: purchases overwrite each other's stock. Expect more sales than items.\n"
	}
	text += fmt.Sprintf("A lock in %s lets one purchase at a time do so, in all processes together.\n", zooKeeper)
	if o.cohort {
		text += "The buyers of one process form a cohort, and pass the lock on among themselves.\n"
	}
	if o.basket > 1 {
		text += fmt.Sprintf("Each buyer wants one item of each of %d goods, or none, and gets their locks by one transaction.\n", o.basket)
	}
	return text + fmt.Sprintf("So exactly %d buyers have to get an item.\n", min(o.buyers, o.items))
}

// report compares the buyers' answers with the database.
type report struct {
	tally
	lock     bool
	items    int // stock at the beginning
	left     int // stock at the end
	recorded int // rows in the table of sales
}

// count reads the stock and the sales. If the goods of a basket differ, those that contradict the answers count.
func (r *report) count(ctx context.Context, db *store, goods []string) error {
	for i, goodsNo := range goods {
		left, err := db.read(ctx, goodsNo)
		if err != nil {
			return err
		}
		recorded, err := db.sales(ctx, goodsNo)
		if err != nil {
			return err
		}
		if i == 0 || left != r.items-r.sold || recorded != r.sold {
			r.left, r.recorded = left, recorded
		}
	}
	return nil
}

// oversold is how many buyers were promised an item that never existed.
func (r report) oversold() int { return max(0, r.sold-r.items) }

// lostUpdates counts the sales that are missing in the stock, because a later write restored the number before an
// earlier sale.
func (r report) lostUpdates() int { return max(0, r.sold-(r.items-r.left)) }

// sound reports whether the sale was correct: every buyer got an answer, each item was sold once and recorded, and
// the stock agrees with the sales.
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

// verdict is the result in one sentence.
func (r report) verdict() string {
	if r.sound() {
		return fmt.Sprintf("OK: nothing oversold, nothing lost. %d of %d items were sold, each of them once.", r.sold, r.items)
	}
	var faults []string
	for _, fault := range []struct {
		count int
		text  string
	}{
		{r.oversold(), "%d buyers were promised an item that did not exist"},
		{r.lostUpdates(), "%d sales are missing from the stock"},
		{r.buyers - r.sold - r.refused, "%d buyers got no answer"},
	} {
		if fault.count > 0 {
			faults = append(faults, fmt.Sprintf(fault.text, fault.count))
		}
	}
	if faults == nil {
		faults = []string{"the stock, the sales and the answers do not agree"}
	}
	text := "NOT OK: " + strings.Join(faults, "; ") + "."
	if !r.lock {
		text += " The lock prevents that."
	}
	return text
}

// write prints the report. Its last line is for programs, and does not change.
func (r report) write(w io.Writer) error {
	out := bufio.NewWriter(w) // keeps the first error for Flush
	_, _ = fmt.Fprintln(out)
	for _, line := range []struct {
		name    string
		value   any
		meaning string
	}{
		{"sold", r.sold, "buyers who got an item"},
		{"refused", r.refused, "buyers refused because the item is sold out"},
		{"unanswered", r.unanswered, "buyers who gave up"},
		{"sales recorded", r.recorded, "rows in the table of sales"},
		{"oversold", r.oversold(), "items sold that did not exist"},
		{"lost updates", r.lostUpdates(), "sales that another purchase overwrote in the stock"},
		{"stale writes refused", r.stale, "by the fencing token"},
		{"retries", r.retries, "requests repeated after a 503 or a broken connection"},
		{"throughput", fmt.Sprintf("%.0f/s", r.throughput()), fmt.Sprintf("buyers answered, in %s", r.elapsed.Round(time.Millisecond))},
		{"wait, median", r.wait(50), "from a buyer's request to the final answer"},
		{"wait, 99th percentile", r.wait(99), "the same"},
	} {
		_, _ = fmt.Fprintf(out, "  %-21s %10v   %s\n", line.name, line.value, line.meaning)
	}
	_, _ = fmt.Fprintf(out, "\n%s\n\nstock: sold %d, refused %d, oversold %d, stock left %d\n",
		r.verdict(), r.sold, r.refused, r.oversold(), r.left)
	return out.Flush()
}
