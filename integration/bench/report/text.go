package report

import (
	"fmt"
	"os/exec"
	"strings"

	"github.com/zkrecipes/zkrecipes/integration/bench/peer"
)

// Markdown is the case as a heading, a table, and the counted figures.
func (s Section) Markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n`%s`: %s. What it costs: %s.\n\n", s.Case.Title, s.Case.Name, s.higher(), s.Case.Cost)
	s.writeTimes(&b)
	s.writeCounts(&b)
	fmt.Fprintf(&b, "Median of %d rounds [least..most]; %s.\n\n", s.rounds, s.environment)
	return b.String()
}

func (s Section) higher() string {
	for _, row := range s.Rows {
		if len(row.Figures) > 0 && row.Figures[0].Higher {
			return "the ratio is better above 1"
		}
	}
	return "the ratio is better below 1"
}

func (s Section) writeTimes(b *strings.Builder) {
	b.WriteString(s.heads() + "\n" + rule(len(s.Rows[0].Figures)+2) + "\n")
	for _, row := range s.Rows {
		b.WriteString(s.cells(row) + "\n")
	}
	b.WriteString("\n")
}

// Page formats the case for docs/evidence: one table of the locks and of the protocol's limit, with the requests and bytes of
// each acquisition.
func (s Section) Page() string {
	var b strings.Builder
	fmt.Fprintf(&b, "### %s\n\n%s", s.Case.Title, s.heads())
	columns := len(s.Rows[0].Figures) + 2
	if len(s.Counted) > 0 {
		b.WriteString(" requests | bytes |")
		columns += 2
	}
	b.WriteString("\n" + rule(columns) + "\n")
	for _, row := range s.Rows {
		switch row.Peer {
		case peer.Unchecked, peer.Listed, peer.Pipelined: // not locks to be used
		default:
			b.WriteString(s.cells(row) + s.sent(row.Peer) + "\n")
		}
	}
	fmt.Fprintf(&b, "\n`%s`, %d rounds; %s\n\n", s.Case.Name, s.rounds, s.environment)
	return b.String()
}

// heads is the first line of the table of figures.
func (s Section) heads() string {
	var b strings.Builder
	b.WriteString("| |")
	for _, f := range s.Rows[0].Figures {
		fmt.Fprintf(&b, " %s, %s |", f.Name, f.Unit)
	}
	fmt.Fprintf(&b, " %s ÷ this |", s.base())
	return b.String()
}

func rule(columns int) string { return "|" + strings.Repeat("---|", columns) }

// cells is the line of a peer in the table of figures.
func (s Section) cells(row Row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s |", row.Peer)
	for _, f := range row.Figures {
		fmt.Fprintf(&b, " %s [%s..%s] |", number(f.Median), number(f.Least), number(f.Most))
	}
	if ratio, ok := s.Ratio(row.Peer); ok {
		fmt.Fprintf(&b, " %.2f |", ratio)
	} else {
		b.WriteString(" |")
	}
	return b.String()
}

// sent returns two more cells with the requests and bytes of an acquisition, which are empty for a peer without
// counts.
func (s Section) sent(name string) string {
	if len(s.Counted) == 0 {
		return ""
	}
	for _, c := range s.Counted {
		if c.Peer == name {
			return fmt.Sprintf(" %.2f | %.0f |", c.Requests(), c.Bytes())
		}
	}
	return " | |"
}

func (s Section) writeCounts(b *strings.Builder) {
	if len(s.Counted) == 0 {
		return
	}
	b.WriteString("| counted, for each acquisition | requests | packets from the server | watch events | bytes | round trips |\n|---|---|---|---|---|---|\n")
	for _, c := range s.Counted {
		trips := ""
		if s.Case.Load.Contenders == 1 {
			trips = fmt.Sprintf("%.2f", c.TripsEach())
		}
		fmt.Fprintf(b, "| %s | %.2f | %.2f | %.2f | %.0f | %s |\n", c.Peer, c.Requests(), c.Packets(), c.EventsEach(), c.Bytes(), trips)
	}
	b.WriteString("\n")
}

// number has three digits that count, or all before the point.
func number(v float64) string {
	switch {
	case v >= 100 || v <= -100:
		return thousands(fmt.Sprintf("%.0f", v))
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

func thousands(digits string) string {
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Benchstat returns one line per round of each peer, in the format of benchstat -col /peer.
func (s Section) Benchstat() string {
	var b strings.Builder
	for _, result := range s.Results {
		fmt.Fprintf(&b, "Benchmark/case=%s/peer=%s 1", result.Case, strings.ReplaceAll(result.Peer, " ", "-"))
		for _, v := range result.Values {
			fmt.Fprintf(&b, " %g %s", v.Number, strings.ReplaceAll(v.Name, " ", "-")+"-"+v.Unit)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// commit is what the repository is at, as far as git knows.
func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown commit"
	}
	return "commit " + strings.TrimSpace(string(out))
}
