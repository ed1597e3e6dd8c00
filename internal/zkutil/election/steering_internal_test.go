package election

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
)

// The best candidate asks those of lower priority ahead. Each of the others waits for the next better one, so that the end of a candidate
// wakes one other.
func TestToAsk(t *testing.T) {
	const unsteered = -1
	for name, tt := range map[string]struct {
		priorities []int
		own        int
		asked      []int
		blocker    int
	}{
		"first":                             {[]int{5}, 0, nil, -1},
		"no lower priority ahead":           {[]int{5, 3, 2, 4}, 1, nil, -1},
		"directly behind the leader":        {[]int{1, 3}, 1, []int{0}, 0},
		"the leader is not asked yet":       {[]int{1, 2, 0, 3, 1}, 3, []int{1, 2}, 2},
		"behind one of the same priority":   {[]int{1, 3, 3}, 2, nil, 1},
		"ahead of one of the same priority": {[]int{1, 3, 3}, 1, []int{0}, 0},
		"the next better is behind":         {[]int{0, 4, 1, 3, 2, 5}, 2, nil, 4},
		"the next better is ahead":          {[]int{0, 4, 2, 1, 3}, 3, nil, 2},
		"the leader is better, too":         {[]int{3, 0, 1, 2}, 2, nil, 3},
		"the last of equals":                {[]int{0, 2, 2, 1, 2, 3}, 3, nil, 4},
		"behind one without a priority":     {[]int{0, unsteered, 3}, 2, nil, 1},
		"ahead of one without a priority":   {[]int{0, 3, unsteered}, 1, []int{0}, 0},
	} {
		var contenders []queue.Contender
		for i, priority := range tt.priorities {
			prefix := "lock-"
			if priority != unsteered {
				prefix = queue.SteeredPrefix(priority, prefix)
			}
			contenders = append(contenders, queue.Contender{Name: fmt.Sprintf("_c_%036d-%s%010d", i, prefix, i)})
		}
		asked, blocker := toAsk(&queue.Queue{Recipe: "selector"}, contenders, tt.own)
		require.Equal(t, tt.asked, asked, name)
		require.Equal(t, tt.blocker, blocker, name)
	}
}
