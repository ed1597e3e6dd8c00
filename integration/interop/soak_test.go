package interop_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	// acquisitions are those of the soak, of all contenders together.
	acquisitions = 2000
	// soakTime bounds the duration.
	soakTime = 4 * time.Minute
)

// TestSoak has 4 contenders in Go, 4 of Curator and 2 of kazoo, each with a session of its own, increment a number in a file that
// nothing but the lock guards.
func TestSoak(t *testing.T) {
	t.Parallel()
	path, folder := plainPath(t), t.TempDir() // in a new container the numbers would begin anew
	require.NoError(t, os.WriteFile(counter(folder), []byte("0"), 0o600))
	require.NoError(t, os.WriteFile(order(folder), nil, 0o600))
	var contenders []*soaker
	for _, team := range []struct {
		language
		size int
	}{{golang, 4}, {javaLang, 4}, {pythonLang, 2}} {
		for range team.size {
			c := team.open(t, options{}).contender(t, path, team.name)
			contenders = append(contenders, &soaker{contender: c, team: team.name, done: make(chan struct{})})
		}
	}
	began := time.Now()
	for _, c := range contenders {
		go c.soak(folder)
	}
	late := time.After(soakTime)
	shares, total := map[string][]int{}, 0
	for _, c := range contenders {
		select {
		case <-c.done:
		case <-late:
			require.Fail(t, "somebody is stuck", "%s, shares so far %v", c.team, shares)
		}
		require.NoError(t, c.err, c.team)
		shares[c.team] = append(shares[c.team], c.share)
		total += c.share
	}
	t.Logf("%d acquisitions in %v, shares %v", total, time.Since(began).Round(time.Second/10), shares)

	require.Equal(t, acquisitions, total)
	count, err := number64(counter(folder))
	require.NoError(t, err)
	require.EqualValues(t, acquisitions, count, "an increment is lost")
	for team, of := range shares {
		require.LessOrEqual(t, float64(slices.Max(of)), 1.5*float64(slices.Min(of)), "%s: %v", team, of)
	}
	inOrder(t, folder)
	require.Empty(t, queue(t, path))
}

// inOrder looks at the znodes of the holders, in the order in which they held the lock.
func inOrder(t *testing.T, folder string) {
	t.Helper()
	text, err := os.ReadFile(order(folder))
	require.NoError(t, err)
	holders := strings.Fields(string(text))
	require.Len(t, holders, acquisitions)
	for i := 1; i < len(holders); i++ {
		require.Less(t, number(holders[i-1]), number(holders[i]), "granted out of turn")
	}
}

// soaker is one contender of the soak.
type soaker struct {
	contender
	team  string
	done  chan struct{} // closed when the following are settled
	share int
	err   error
}

func (s *soaker) soak(folder string) { // ends when the number is reached; joined by the test
	defer close(s.done)
	if c, ok := s.contender.(*agentContender); ok {
		words, err := c.process.GoFor(soakTime, "soak", c.name, folder, strconv.Itoa(acquisitions)).Result()
		if s.err = err; err == nil {
			s.share, s.err = strconv.Atoi(words[0])
		}
		return
	}
	for more := true; more && s.err == nil; {
		more, s.err = s.increment(folder)
	}
}

// increment reports whether there was something left to do.
func (s *soaker) increment(folder string) (more bool, err error) {
	if err := s.lock(); err != nil {
		return false, err
	}
	defer func() {
		if failed := s.unlock(); err == nil {
			err = failed
		}
	}()
	count, err := number64(counter(folder))
	if err != nil || count >= acquisitions {
		return false, err
	}
	file, err := os.OpenFile(order(folder), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return false, err
	}
	defer file.Close()
	if _, err := fmt.Fprintln(file, s.contender.(*goContender).lease.Path()); err != nil {
		return false, err
	}
	s.share++
	return true, os.WriteFile(counter(folder), []byte(strconv.FormatInt(count+1, 10)), 0o600)
}

func counter(folder string) string { return filepath.Join(folder, "counter") }
func order(folder string) string   { return filepath.Join(folder, "order") }

func number64(file string) (int64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(string(text), 10, 64)
}
