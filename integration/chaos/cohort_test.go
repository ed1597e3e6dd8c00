package chaos

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/judge"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// cohorts is a history of three leases on one znode, and of one of another process behind it.
func cohorts() (h *History, holds []*Hold) {
	h = &History{}
	lease := func(proc, try int, znode string, token, from, to int64) {
		holds = append(holds, &Hold{
			By: "p", Path: cohortPath, Proc: proc, Try: try, Znode: znode, Token: token, Granted: from, Releasing: to - ms, Ended: to,
			Cause: recipes.ErrReleased.Error(),
		})
	}
	lease(1, 1, "a", 100, 1*second, 2*second)
	lease(1, 2, "a", 100, 2*second, 3*second)
	lease(1, 3, "a", 100, 3*second, 4*second)
	lease(2, 1, "b", 101, 5*second, 6*second)
	return h, holds
}

func TestCohortsAreJudged(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(holds []*Hold)
		want  string // "": nothing is wrong
	}{
		"sound": {func([]*Hold) {}, ""},
		"a release that is recorded late, on a znode that expires under the next lease": {func(holds []*Hold) {
			holds[0].Life = &Life{End: Expired}
			holds[0].Ended += ms
		}, ""},
		"two at a time":             {func(holds []*Hold) { holds[1].Granted -= second / 2 }, "before the context of"},
		"one of another process":    {func(holds []*Hold) { holds[2].Proc = 2 }, "have token 100"},
		"on another znode":          {func(holds []*Hold) { holds[2].Znode = "b" }, "have token 100"},
		"behind a loss":             {func(holds []*Hold) { holds[1].Cause = recipes.ErrSessionLost.Error() }, "have token 100"},
		"a token that comes late":   {func(holds []*Hold) { holds[3].Token = 99 }, "has token"},
		"one that does not end":     {func(holds []*Hold) { holds[3].Ended = 0 }, "has not ended"},
		"the next before the first": {func(holds []*Hold) { holds[3].Granted = 2 * second }, "before the context of"},
	} {
		t.Run(name, func(t *testing.T) {
			h, holds := cohorts()
			c.plant(holds)
			v := &Verdict{Excused: make(map[judge.Excuse]int)}
			v.passes(h, cohortPath, holds)
			if c.want == "" {
				require.Empty(t, v.Violations)
				return
			}
			require.NotEmpty(t, v.Violations)
			require.Contains(t, v.Violations[0], c.want)
		})
	}
}
