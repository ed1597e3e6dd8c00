package conformance_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/conformance"
)

func texts(steps []conformance.Step) []string {
	list := make([]string, len(steps))
	for i, step := range steps {
		list[i] = step.String()
	}
	return list
}

func TestSeedDeterminesSteps(t *testing.T) {
	long := texts(conformance.Random(7, 3000))
	require.Equal(t, long, texts(conformance.Random(7, 3000)))
	short := texts(conformance.Random(7, 1000))
	require.Equal(t, long[:len(short)], short)
	require.NotEqual(t, long, texts(conformance.Random(8, 3000)))
}

func TestRandomStepsCanBeReplayedFromTheirText(t *testing.T) {
	for _, step := range conformance.Random(7, 3000) {
		again, err := conformance.ParseStep(step.String())
		require.NoError(t, err)
		require.Equal(t, step.String(), again.String())
	}
}

func TestRandomStepsCoverEverything(t *testing.T) {
	ops := map[string]int{}
	for _, step := range conformance.Random(7, 20_000) {
		ops[step.Op]++
		for _, part := range step.Parts {
			ops[part.Op]++
		}
	}
	for _, op := range []string{
		"create", "create2", "createContainer", "createTTL", "delete", "setData", "check", "exists", "getData",
		"getChildren", "getChildren2", "getACL", "setACL", "sync", "auth", "multi", "pipeline", "connect", "close",
		"drop", "reconnect", "op", "bytes", "wipe", "checks", "reads", "multiRead", "cut",
	} {
		require.Positive(t, ops[op], op)
	}
}
