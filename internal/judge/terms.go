package judge

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// Open is the end of a term that has not ended.
const Open = time.Duration(math.MaxInt64)

// Term is a hold of a lock, or a term of leadership, as its holder has seen it. Instants are of one clock, counted from any
// moment.
type Term struct {
	Token    int64
	From, To time.Duration // the grant, and the end
}

// Rule is what a record can break.
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

// Breach is what two terms do wrong, or one term that does not end. They are numbers of the record. Before was granted before
// Next.
type Breach struct {
	Rule         Rule
	Before, Next int
	By           time.Duration // how far the one goes into the other, or was granted before it
}

func (b Breach) String() string {
	return fmt.Sprintf("%v: broken by terms %d and %d, by %v", b.Rule, b.Before, b.Next, b.By)
}

// Terms judges the complete record of one path, in any order. The window bounds with how many of the grants after it a term is
// compared for exclusion; 0: with all. A term that does not end breaks no rule but the first.
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
