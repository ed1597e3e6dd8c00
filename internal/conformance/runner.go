package conformance

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// Dial makes a new connection to the server under test.
type Dial func() (net.Conn, error)

// Runner plays steps on a server and records the answers. It is not safe for concurrent
// use.
type Runner struct {
	normal
	dial     Dial
	sessions map[string]*session // by name in scripts; the latest session of each name
	open     map[int64][]byte    // sessions to close, with their passwords
	made     []string            // paths that the server returned
	at       int64               // the zxid reported last
	lines    []string            // the transcript of the current step
}

// NewRunner makes a Runner; Close ends its sessions.
func NewRunner(dial Dial) *Runner {
	return &Runner{
		normal:   normal{times: map[int64]int64{}, named: map[int64]string{}},
		dial:     dial,
		sessions: map[string]*session{},
		open:     map[int64][]byte{},
	}
}

// Play plays one step and returns the observations, one per line: events and answers of the
// step's own session in order of arrival, then the events of the other sessions. A line
// with an exclamation mark is something that no server should do.
func (r *Runner) Play(step Step) []string {
	r.lines = nil
	if err := r.play(step); err != nil {
		r.say("! %s: %v", step, err)
	}
	if step.has("until") {
		r.until(step.get("until"))
	}
	r.barrier(step)
	if step.Op == "close" || step.has("until") {
		r.sortEvents()
	}
	return r.lines
}

func (r *Runner) say(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *Runner) play(step Step) error {
	if step.Op == "connect" || step.Op == "reconnect" {
		return r.connect(step)
	}
	s := r.sessions[step.Session]
	if s == nil || s.line == nil {
		r.say("%s not connected", step.Session)
		return nil
	}
	switch step.Op {
	case "drop":
		s.hangUp()
		return nil
	case "bytes", "partial":
		return r.bytes(s, step)
	case "pipeline":
		return r.requests(s, step.Parts...)
	case "cut":
		return r.cut(s, step.Parts)
	case "wipe":
		return r.wipe(s, step.path())
	}
	return r.requests(s, step)
}

// requests sends steps at once and reads all answers.
func (r *Runner) requests(s *session, steps ...Step) error {
	var frames []byte
	pending := make([]request, len(steps))
	for i, step := range steps {
		q, frame, err := r.request(s, step)
		if err != nil {
			return err
		}
		pending[i] = q
		frames = append(frames, frame...)
	}
	s.line.write(frames)
	for _, q := range pending {
		if q.step.has("unanswered") {
			continue
		}
		if !r.read(s, q.xid, func(head header, body *proto.Decoder) { r.reply(s, q, head, body) }) {
			return nil
		}
	}
	if last := pending[len(pending)-1]; last.op == proto.OpCloseSession {
		delete(r.open, s.id)
		r.ends(s)
	}
	return nil
}

// path returns a step's path; "$1" is the path created last, "$2" the path before, and
// "$2/x" a child of "$2".
func (r *Runner) path(s Step) (string, error) {
	path := s.path()
	rest, ok := strings.CutPrefix(path, "$")
	if !ok {
		return path, nil
	}
	digits, child, _ := strings.Cut(rest, "/")
	n, err := strconv.Atoi(digits)
	if err != nil || n < 1 {
		return "", fmt.Errorf("path %q", path)
	}
	if n > len(r.made) {
		return "/none/none", nil
	}
	path = r.made[len(r.made)-n]
	if child != "" {
		path += "/" + child
	}
	return path, nil
}
