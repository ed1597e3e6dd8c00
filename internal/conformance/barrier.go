package conformance

import (
	"maps"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// barrier pings on every connection and reads up to the answers: by then, every effect of
// the step has arrived.
func (r *Runner) barrier(step Step) {
	names := slices.Sorted(maps.Keys(r.sessions))
	if i := slices.Index(names, step.Session); i > 0 {
		names = slices.Insert(slices.Delete(names, i, i+1), 0, step.Session)
	}
	ping := proto.NewEncoder().Int32(proto.XidPing).Int32(proto.OpPing).Frame()
	var pinged []*session
	for _, name := range names {
		s := r.sessions[name]
		if s.line == nil || s.mute {
			continue
		}
		s.line.write(ping)
		if name == step.Session && step.has("unanswered") {
			r.pong(s)
			continue
		}
		pinged = append(pinged, s)
	}
	for _, s := range pinged {
		r.pong(s)
	}
}

// pong reads up to the answer to a ping, and reports the zxid in the answer if it is new.
func (r *Runner) pong(s *session) {
	r.read(s, proto.XidPing, func(head header, body *proto.Decoder) {
		if head.code != proto.CodeOK || body.Len() > 0 {
			r.say("! %s: ping %s, %d bytes more", s.name, proto.CodeName(head.code), body.Len())
		}
		if head.zxid != r.at {
			r.say("%s at %s", s.name, r.showZxid(head.zxid))
			r.at = head.zxid
		}
	})
}

// until waits for an event: "b:Deleted /x" waits until session b is notified of the
// deletion.
func (r *Runner) until(event string) {
	name, what, _ := strings.Cut(event, ":")
	line := name + " event " + what
	for s := r.sessions[name]; s != nil && !slices.Contains(r.lines, line); {
		if !r.read(s, proto.XidEvent, nil) {
			return
		}
	}
}

// sortEvents sorts the events at the end of a session, because the server takes the
// session's znodes from a set.
func (r *Runner) sortEvents() {
	for from := 0; from < len(r.lines); {
		name, what, _ := strings.Cut(r.lines[from], " ")
		to := from + 1
		if strings.HasPrefix(what, "event ") {
			for to < len(r.lines) && strings.HasPrefix(r.lines[to], name+" event ") {
				to++
			}
		}
		slices.Sort(r.lines[from:to])
		from = to
	}
}
