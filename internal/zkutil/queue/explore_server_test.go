package queue

import (
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/conformance"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// twoServers are the explorer's model of the servers, and a server of zktest, which internal/conformance compares with real ones. Sessions 0
// and 1 have two contenders each, and session 2 is a third party.
type twoServers struct {
	*world
	runner *conformance.Runner
	random *rand.Rand
	said   []string // all steps, with their answers
}

func startTwoServers(t *testing.T, seed uint64) *twoServers {
	t.Helper()
	srv := zktest.NewServer(t)
	s := &twoServers{
		world:  start(&cast{kinds: "wwww", sessions: []int{0, 0, 1, 1}, rule: Exclusive}),
		runner: conformance.NewRunner(func() (net.Conn, error) { return net.Dial("tcp", srv.Addr()) }),
		random: rand.New(rand.NewPCG(seed, 0)),
	}
	t.Cleanup(func() { require.NoError(t, s.runner.Close()) })
	s.play(t, "a connect")
	s.play(t, "b connect")
	s.play(t, "c connect")
	s.play(t, "c create /q")
	return s
}

// play plays a step at zktest's server, and returns what it tells the clients.
func (s *twoServers) play(t *testing.T, text string) (told []string) {
	t.Helper()
	step, err := conformance.ParseStep(text)
	require.NoError(t, err)
	s.said = append(s.said, text)
	for _, line := range s.runner.Play(step) {
		s.said = append(s.said, "    "+line)
		session, rest, _ := strings.Cut(line, " ")
		switch words := strings.Fields(rest); {
		case words[0] == "event":
			told = append(told, session+" "+words[1]+" "+strings.TrimPrefix(words[2], "/q/"))
		case strings.Contains(rest, "["):
			names := strings.Fields(rest[strings.Index(rest, "[")+1 : strings.Index(rest, "]")])
			told = append(told, fmt.Sprintf("%s lists %v", session, names))
		case words[0] == "session" || words[0] == "at" || words[0] == "closed": // of which the model has nothing
		default:
			told = append(told, session+" "+words[0])
		}
	}
	return told
}

// tell returns what the model's servers tell the clients, that of one session first.
func (s *twoServers) tell(first int) (told []string) {
	for _, session := range []int{first, (first + 1) % 3, (first + 2) % 3} {
		s.applyAll(session)
		for _, m := range s.conns[session].down {
			name := string(rune('a' + session))
			switch {
			case m.isEvent:
				m.nodes.each(func(i int) { told = append(told, name+" Deleted "+letter(i)) })
			case m.isEnded:
				told = append(told, name+" expired")
			case m.request.kind == list:
				var names []string
				m.nodes.each(func(i int) { names = append(names, letter(i)) })
				told = append(told, fmt.Sprintf("%s lists %v", name, names))
			case m.request.kind == create, m.request.kind == removeOwn, m.isFound:
				told = append(told, name+" ok")
			default:
				told = append(told, name+" NoNode")
			}
		}
		s.conns[session].down = nil
	}
	return told
}

// ask sends a request to the model's server.
func (s *twoServers) ask(session int, r request) {
	c := &s.conns[session]
	c.up = append(c.up, r)
	s.execute(session)
}

// next takes a random step at both, and returns what each tells the clients.
func (s *twoServers) next(t *testing.T) (model, server []string) {
	t.Helper()
	session, i := s.random.IntN(2), s.random.IntN(4)
	name, path := string(rune('a'+session)), "/q/"+letter(i)
	exists := s.tree(int8(len(s.log))).has(i)
	isOver := s.conns[session].isExpired
	switch kind := s.random.IntN(12); {
	case kind == 0 || isOver:
		if isOver && s.random.IntN(5) > 0 {
			return nil, nil
		}
		s.reset(session, int8(len(s.log)))
		s.conns[session].up = nil // a script sends nothing again by itself
		return s.tell(session), s.play(t, name+" reconnect nowatches")
	case kind == 1 && s.random.IntN(4) == 0:
		s.expire(session)
		model = s.tell(session)
		own := slices.IndexFunc(append(model, ""), func(line string) bool { return !strings.HasPrefix(line, name) })
		return slices.Insert(model, own, name+" ok"), s.play(t, name+" close") // whose own events precede the answer
	case kind <= 4 && !s.isCreated(i):
		if s.sessions[i] != session {
			return nil, nil
		}
		s.ask(session, request{kind: create, by: int8(i)})
		return s.tell(session), s.play(t, name+" create "+path+" ephemeral")
	case kind <= 4:
		s.ask(session, request{kind: list})
		return s.tell(session), s.play(t, name+" getChildren /q")
	case kind <= 8:
		s.ask(session, request{kind: watchNode, node: int8(i)})
		return s.tell(session), s.play(t, name+" getData "+path+" watch")
	case kind == 9 && exists:
		s.ask(session, request{kind: removeOwn, node: int8(i)})
		return s.tell(session), s.play(t, name+" delete "+path)
	case kind == 10 && s.tree(int8(len(s.log))) != 0:
		nodes := s.tree(int8(len(s.log)))
		if other := set(s.random.IntN(16)); nodes&other != 0 {
			nodes &= other
		}
		s.commit(txn{nodes: nodes})
		var parts []string
		nodes.each(func(i int) { parts = append(parts, "delete /q/"+letter(i)) })
		return append([]string{"c ok"}, s.tell(2)...), s.play(t, "c multi "+strings.Join(parts, "; "))
	}
	return nil, nil
}

// The model of the explorer answers random requests like a server of zktest that is up to date: what a list has, whether a znode is found,
// which watches fire and before which answer, what the end of a session and a new connection do to watches.
func TestModelAnswersLikeAServer(t *testing.T) {
	met := map[string]int{}
	for seed := range uint64(60) {
		s := startTwoServers(t, seed)
		for range 60 {
			model, server := s.next(t)
			require.Equal(t, model, server, "seed %d:\n%s", seed, strings.Join(s.said, "\n"))
			for _, line := range server {
				met[strings.Fields(line)[1]]++
			}
		}
	}
	for _, word := range []string{"ok", "NoNode", "Deleted", "expired", "lists"} {
		require.Greater(t, met[word], 50, word)
	}
}
