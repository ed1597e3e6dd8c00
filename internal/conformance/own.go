package conformance

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// firstOwnXid is the first xid of requests with "xid=own": xids that zk.Conn never uses.
// The engine uses such xids for its own requests.
const firstOwnXid = -1001

// cut sends requests at once, the last of them incomplete, and cuts the connection.
// Complete requests are executed: cut reads until the server ends the connection, and
// reports no answer, because a server may or may not answer.
func (r *Runner) cut(s *session, steps []Step) error {
	var frames []byte
	for i, step := range steps {
		_, frame, err := r.request(s, step)
		if err != nil {
			return err
		}
		if i == len(steps)-1 {
			frame = s.line.half(frame)
		}
		frames = append(frames, frame...)
	}
	s.line.write(frames)
	s.line.closeWrite()
	if err := s.line.drain(); err != nil {
		return err
	}
	s.hangUp()
	return nil
}

// flush returns requests that the engine sends in one write: its own, and sometimes a
// request of zk.Conn's between them.
func (g *generator) flush() string {
	var parts []string
	for range 1 + g.rnd.IntN(3) {
		parts = append(parts, g.own()...)
	}
	if g.rnd.IntN(3) == 0 {
		parts = slices.Insert(parts, g.rnd.IntN(len(parts)+1), g.ordered())
	}
	return strings.Join(parts, "; ")
}

// own returns requests that the engine sends together.
func (g *generator) own() []string {
	var parts []string
	switch g.pick([]choice{{4, "join"}, {3, "leave"}, {3, "grant"}, {3, "look"}, {2, "watch"}, {2, "between"}, {2, "find"}, {1, "make"}}) {
	case "join":
		parts = []string{"create2 " + g.below() + g.data() + " ephemeral sequential", "getChildren2 /r" + g.watch()}
	case "leave":
		parts = []string{"delete " + g.path(), "getChildren2 " + g.path()}
	case "grant":
		parts = []string{"checks " + g.path() + " " + g.path(), "getChildren2 " + g.path() + g.watch()}
	case "look":
		parts = []string{"getData " + g.path() + g.watch(), "getChildren2 " + g.path()}
	case "watch":
		for range 1 + g.rnd.IntN(5) {
			parts = append(parts, "getData "+g.path()+" watch")
		}
		parts = append(parts, "exists "+g.path()+" watch")
	case "between":
		kind := g.pick([]choice{{1, ""}, {2, " children"}})
		parts = []string{"delete " + g.path(), "reads " + g.path() + " " + g.path() + " " + g.path() + kind + g.watch(), "getData " + g.path() + g.watch()}
	case "find":
		parts = []string{"sync " + g.path(), "getChildren2 " + g.path()}
	default:
		parts = []string{"createContainer " + g.below(), "create " + g.below(), "setData " + g.path() + g.data(), "checks " + g.path()}
	}
	for i := range parts {
		parts[i] += " xid=own"
	}
	return parts
}

func (g *generator) watch() string { return g.pick([]choice{{1, ""}, {1, " watch"}}) }

// checks returns the parts of a transaction that checks the versions of several znodes.
func checks(s Step) (parts []Step) {
	for _, arg := range s.Args {
		if arg.Key == "" {
			parts = append(parts, Step{Op: "check", Args: []Arg{arg, {Key: "v", Value: fmt.Sprint(-1)}}})
		}
	}
	return parts
}

// reads returns the parts of a multiRead of several znodes.
func reads(s Step) (parts []Step) {
	op := "getData"
	if s.has("children") {
		op = "getChildren"
	}
	for _, arg := range s.Args {
		if arg.Key != "" {
			continue
		}
		part := Step{Op: op, Args: []Arg{arg}}
		if s.has("watch") {
			part.Args = append(part.Args, Arg{Key: "watch"})
		}
		parts = append(parts, part)
	}
	return parts
}

// bytes sends bytes unchanged. After "partial" the frame is incomplete and the session
// sends no more; after "bytes" the server is expected to hang up.
func (r *Runner) bytes(s *session, step Step) error {
	b, err := hex.DecodeString(step.get("hex"))
	if err != nil {
		return err
	}
	s.line.write(b)
	if step.Op == "partial" {
		s.mute = true
		return nil
	}
	r.ends(s)
	return nil
}
