package conformance_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/conformance"
)

func TestParseStep(t *testing.T) {
	step, err := conformance.ParseStep(`a create "/x y" data="a b" ephemeral v=-1`)
	require.NoError(t, err)
	require.Equal(t, conformance.Step{Session: "a", Op: "create", Args: []conformance.Arg{
		{Value: "/x y"},
		{Key: "data", Value: "a b"},
		{Key: "ephemeral"},
		{Key: "v", Value: "-1"},
	}}, step)

	step, err = conformance.ParseStep("b multi truncate=3 create /y; check /x v=3;delete $1")
	require.NoError(t, err)
	require.Equal(t, conformance.Step{
		Session: "b", Op: "multi",
		Args: []conformance.Arg{{Key: "truncate", Value: "3"}},
		Parts: []conformance.Step{
			{Op: "create", Args: []conformance.Arg{{Value: "/y"}}},
			{Op: "check", Args: []conformance.Arg{{Value: "/x"}, {Key: "v", Value: "3"}}},
			{Op: "delete", Args: []conformance.Arg{{Value: "$1"}}},
		},
	}, step)
}

func TestStepTextRoundTrips(t *testing.T) {
	for _, text := range []string{
		"a connect",
		"a connect timeout=10s",
		`a create "x"`,
		`a create ""`,
		`a create "/a b"`,
		`a create "/a;b"`,
		`a create "/\x00\u00fc\xff\U0001f600"`,
		"a create $2/x null",
		"a create /x=y data=a=b",
		`a create /x data="\""`,
		"a multi",
		"a multi create /x",
		"a multiRead getData /x watch; getChildren /y",
		"a pipeline extra=2 create /x; multi; delete /x v=7",
	} {
		step, err := conformance.ParseStep(text)
		require.NoError(t, err)
		require.Equal(t, text, step.String())
	}
}

func TestParseStepRejectsMalformedText(t *testing.T) {
	for _, text := range []string{"", "a", `a create "/x`, "a create =x", `a create data="x`} {
		_, err := conformance.ParseStep(text)
		require.Error(t, err, text)
	}
}
