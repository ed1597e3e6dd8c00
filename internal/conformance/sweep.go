package conformance

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// sweeper is the name of the session that Close uses.
const sweeper = "sweeper"

// Close ends all sessions and removes all znodes, so that the next Runner finds the server
// unchanged. An error names a leftover.
func (r *Runner) Close() error {
	r.lines = nil
	for _, s := range r.sessions {
		s.hangUp()
	}
	for id, password := range r.open {
		r.sessions[sweeper] = &session{id: id, password: password}
		if err := r.sweeping("reconnect", "close"); err != nil {
			return err
		}
	}
	return r.sweeping("connect", "auth digest=u:p", "auth digest=v:q", "wipe /", "close")
}

func (r *Runner) sweeping(ops ...string) error {
	for _, op := range ops {
		step, err := ParseStep(sweeper + " " + op)
		if err != nil {
			return err
		}
		if err := r.play(step); err != nil {
			return err
		}
	}
	for _, line := range r.lines {
		if strings.Contains(line, "!") || strings.Contains(line, " left ") {
			return fmt.Errorf("after all steps: %s", line)
		}
	}
	return nil
}

// wipe removes all znodes below a path but the server's own, and reports leftovers.
func (r *Runner) wipe(s *session, path string) error {
	_, body, err := r.insist(s, path, Step{Op: "getChildren", Args: []Arg{{Value: path}}})
	if err != nil || body == nil {
		return err
	}
	names := body.Strings()
	slices.Sort(names)
	for _, name := range names {
		child := strings.TrimSuffix(path, "/") + "/" + name
		if child == "/zookeeper" {
			continue
		}
		if err := r.wipe(s, child); err != nil {
			return err
		}
		head, _, err := r.insist(s, path, Step{Op: "delete", Args: []Arg{{Value: child}}})
		if err != nil {
			return err
		}
		if head.code != proto.CodeOK {
			r.say("%s left %s: %s", s.name, quote(child), proto.CodeName(head.code))
		}
	}
	return nil
}

// insist sends a request, and if refused for lack of permission, opens the path to all and
// sends the request again.
func (r *Runner) insist(s *session, path string, step Step) (header, *proto.Decoder, error) {
	head, body, err := r.ask(s, step)
	if err != nil || head.code != proto.CodeNoAuth {
		return head, body, err
	}
	if _, _, err := r.ask(s, Step{Op: "setACL", Args: []Arg{{Value: path}}}); err != nil {
		return header{}, nil, err
	}
	return r.ask(s, step)
}

// ask sends one request and returns the answer; the body is nil if the answer is an error.
func (r *Runner) ask(s *session, step Step) (header, *proto.Decoder, error) {
	q, frame, err := r.request(s, step)
	if err != nil {
		return header{}, nil, err
	}
	s.line.write(frame)
	var answer header
	var result *proto.Decoder
	if !r.read(s, q.xid, func(head header, body *proto.Decoder) { answer, result = head, body }) {
		return header{}, nil, errHungUp
	}
	if answer.code != proto.CodeOK {
		result = nil
	}
	return answer, result, nil
}
