package judge

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Open is the end of a term without an end.
const Open = time.Duration(math.MaxInt64)

// Term is a hold of a lock, or a term of leadership, as observed by its holder. All instants come from the same clock, counted
// from an arbitrary moment.
type Term struct {
	Token    int64
	From, To time.Duration // the grant, and the end
}

// Rule is a rule that a record can break.
type Rule int

// The rules.
const (
	Ends      Rule = iota + 1 // each term ends
	OneToken                  // no token is granted twice
	Order                     // tokens grow from grant to grant
	Exclusion                 // a term has ended when the next one begins
)

func (r Rule) String() string {
	return [...]string{"", "each term ends", "no token is granted twice", "tokens grow", "one holder at an instant"}[r]
}

// Breach is a violation by two terms, or by one term without an end. Before and Next are indexes into the record. Before was
// granted before Next.
type Breach struct {
	Rule         Rule
	Before, Next int
	By           time.Duration // the overlap of the two terms, or the time between their grants
}

func (b Breach) String() string {
	return fmt.Sprintf("%v: broken by terms %d and %d, by %v", b.Rule, b.Before, b.Next, b.By)
}

// Terms judges the complete record of one path, in any order. window limits the number of later grants with which a term is
// compared for exclusion; 0: no limit. A term without an end breaks no rule but Ends.
func Terms(record []Term, window int) (breaches []Breach) {
	order := make([]int, len(record))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(record[a].From, record[b].From), cmp.Compare(record[a].Token, record[b].Token))
	})
	var tokens Tokens[int]
	holders := Holders[int]{Window: window}
	for _, next := range order {
		term := record[next]
		if before, grows := tokens.Grant(term.Token, next); !grows {
			rule := Order
			if record[before].Token == term.Token {
				rule = OneToken
			}
			breaches = append(breaches, Breach{rule, before, next, term.From - record[before].From})
		}
		for _, before := range holders.Grant(next, func(before int) bool { return record[before].To > term.From && record[before].To != Open }) {
			breaches = append(breaches, Breach{Exclusion, before, next, record[before].To - term.From})
		}
		if term.To == Open {
			breaches = append(breaches, Breach{Ends, next, next, 0})
		}
	}
	return breaches
}
