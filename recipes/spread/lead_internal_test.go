package spread

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// candidate is an Election with given participants, which records transfers.
type candidate struct {
	id           string
	participants []recipes.Participant
	failure      error // of Participants
	refuses      []string
	leadsFrom    time.Time // zero: never
	transfers    []string
}

var errRefused = errors.New("refused")

func (c *candidate) ID() string { return c.id }

func (c *candidate) HasLeadership() bool {
	return !c.leadsFrom.IsZero() && !time.Now().Before(c.leadsFrom)
}

func (c *candidate) Participants(context.Context) ([]recipes.Participant, error) {
	return c.participants, c.failure
}

func (c *candidate) TransferTo(_ context.Context, id string) error {
	c.transfers = append(c.transfers, id)
	if slices.Contains(c.refuses, id) {
		return errRefused
	}
	return nil
}

// A process takes an election over if it takes part, no candidate has a higher priority, and the leader is a member.
func TestWhenAnElectionIsTakenOver(t *testing.T) {
	members := []*member{{id: "a"}, {id: "b"}}
	leader, other := recipes.Participant{ID: "b", Leader: true}, recipes.Participant{ID: "x"}
	own, urgent := recipes.Participant{ID: "a"}, recipes.Participant{ID: "b", Priority: 1}
	for name, test := range map[string]struct {
		participants []recipes.Participant
		failure      error
		isTakenOver  bool
	}{
		"behind a member":            {participants: []recipes.Participant{leader, own}, isTakenOver: true},
		"beside others":              {participants: []recipes.Participant{leader, other, own, other}, isTakenOver: true},
		"without a leader":           {participants: []recipes.Participant{other, own}, isTakenOver: true},
		"behind one outside":         {participants: []recipes.Participant{{ID: "x", Leader: true}, own}},
		"without taking part":        {participants: []recipes.Participant{leader}},
		"without candidates":         {},
		"beside a higher priority":   {participants: []recipes.Participant{leader, own, urgent}},
		"behind the same priority":   {participants: []recipes.Participant{{ID: "b", Leader: true, Priority: 1}, {ID: "a", Priority: 1}}, isTakenOver: true},
		"without the participants":   {participants: []recipes.Participant{leader, own}, failure: errRefused},
		"while the transfer refuses": {participants: []recipes.Participant{leader, own}, isTakenOver: true},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				c := &candidate{id: "a", participants: test.participants, failure: test.failure, leadsFrom: time.Now().Add(time.Second)}
				start := time.Now()
				if name == "while the transfer refuses" {
					c.refuses = []string{"a"}
				}
				err := lead(t.Context(), &entry{Election: c}, members)
				require.Equal(t, test.failure != nil || c.refuses != nil, errors.Is(err, errRefused))
				require.Equal(t, test.isTakenOver, slices.Equal(c.transfers, []string{"a"}))
				if test.isTakenOver && c.refuses == nil {
					require.Equal(t, time.Second, time.Since(start), "it returns once it leads")
				} else {
					require.Equal(t, start, time.Now())
				}
			})
		})
	}
	testkit.Bubble(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := &candidate{id: "a", participants: []recipes.Participant{leader, own}}
		start := time.Now()
		require.NoError(t, lead(ctx, &entry{Election: c}, members))
		require.Equal(t, time.Minute, time.Since(start))
		require.ErrorIs(t, lead(ctx, &entry{Election: c}, members), context.DeadlineExceeded)
		require.Len(t, c.transfers, 1, "no transfer begins after the end")
	})
}

// A leader asks the others one after the other, until one leads.
func TestHandOver(t *testing.T) {
	now := time.Now()
	others := []*member{{id: "b", elections: []string{"e"}, since: now}, {id: "c", elections: []string{"e"}, since: now.Add(1)}, {id: "d", elections: []string{"f"}}}
	participants := []recipes.Participant{{ID: "a", Leader: true}, {ID: "b"}, {ID: "c"}, {ID: "d"}}
	for name, test := range map[string]struct {
		c         candidate
		others    []*member
		transfers []string
		err       error
	}{
		"no leader":         {c: candidate{}, others: others},
		"the owner":         {c: candidate{leadsFrom: now}, others: others, transfers: []string{"c"}},
		"the next":          {c: candidate{leadsFrom: now, refuses: []string{"c"}}, others: others, transfers: []string{"c", "b"}},
		"none that accepts": {c: candidate{leadsFrom: now, refuses: []string{"c", "b"}}, others: others, transfers: []string{"c", "b"}, err: errRefused},
		"none at all":       {c: candidate{leadsFrom: now}, others: others[2:], err: recipes.ErrNoCandidate},
		"no list":           {c: candidate{leadsFrom: now, failure: errRefused}, others: others, err: errRefused},
	} {
		c := test.c
		c.id, c.participants = "a", participants
		err := handOver(t.Context(), &entry{Election: &c, hash: "e"}, test.others, "c")
		require.ErrorIs(t, err, test.err, name)
		require.Equal(t, test.transfers, c.transfers, name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c := &candidate{id: "a", participants: participants, leadsFrom: now}
	require.ErrorIs(t, handOver(ctx, &entry{Election: c, hash: "e"}, others, "c"), context.Canceled)
	require.Empty(t, c.transfers)
}

// Of the elections that this process owns and does not lead, the one tried least recently is next, unless it was led within a session timeout, or
// the pause after its latest attempt is not over. The pauses double, and start over once an election was left alone for long.
func TestPaceOfAttempts(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		client := testclient.Connect(t, zktest.NewServer(t), recipes.WithID("a"))
		s, err := New(client, "/spread")
		require.NoError(t, err)
		first, second := &candidate{id: "a"}, &candidate{id: "a"}
		for _, c := range []*candidate{first, second} {
			_, err = s.Add(&struct {
				*candidate
				name *candidate
			}{c, c})
			require.NoError(t, err)
		}
		one, two := s.elections[0], s.elections[1]
		timeout := s.session.Timeout()
		next := func() *entry { return s.nextDue(t.Context(), s.elections) }
		require.Same(t, one, next())
		s.takeOver(t.Context(), one)
		require.Same(t, two, next())
		s.takeOver(t.Context(), two)
		require.Nil(t, next(), "both were tried")
		time.Sleep(timeout - 1) //nolint:forbidigo // virtual time
		require.Nil(t, next())
		time.Sleep(time.Nanosecond) //nolint:forbidigo // virtual time
		require.Same(t, one, next(), "the first of equals")
		one.triedAt = one.triedAt.Add(1)
		require.Same(t, two, next())

		first.leadsFrom = time.Now()
		second.leadsFrom = time.Now()
		require.Nil(t, next())
		require.Equal(t, time.Now(), one.ledAt)
		first.leadsFrom, second.leadsFrom = time.Time{}, time.Time{}
		time.Sleep(timeout - 1) //nolint:forbidigo // virtual time
		require.Nil(t, next(), "it led a moment ago")
		time.Sleep(time.Nanosecond) //nolint:forbidigo // virtual time
		require.NotNil(t, next())

		pauses := []time.Duration{}
		for range 12 {
			s.takeOver(t.Context(), one)
			pauses = append(pauses, one.pause/timeout)
			time.Sleep(one.pause) //nolint:forbidigo // virtual time
		}
		require.Equal(t, []time.Duration{2, 4, 8, 16, 32, 64, 100, 100, 100, 100, 100, 100}, pauses)
		time.Sleep(4 * maxPause) //nolint:forbidigo // virtual time
		s.takeOver(t.Context(), one)
		require.Equal(t, maxPause, one.pause)
		time.Sleep(5*maxPause + 1) //nolint:forbidigo // virtual time
		s.takeOver(t.Context(), one)
		require.Equal(t, timeout, one.pause)
		require.NoError(t, s.Close())
	})
}
