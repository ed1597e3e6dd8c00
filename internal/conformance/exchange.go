package conformance

import (
	"errors"
	"fmt"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// request is a request that waits for its answer.
type request struct {
	op, xid int32
	step    Step
}

// request encodes the frame of a step.
func (r *Runner) request(s *session, step Step) (request, []byte, error) {
	op, err := opcode(step)
	if err != nil {
		return request{}, nil, err
	}
	q := request{op: op, step: step}
	switch op {
	case proto.OpAuth:
		q.xid = proto.XidAuth
	case proto.OpSetWatches, proto.OpSetWatches2:
		q.xid = proto.XidSetWatches
	default:
		q.xid = s.nextXid(step.get("xid") == "own")
	}
	left, err := step.number("minus1", 0)
	if err != nil {
		return request{}, nil, err
	}
	e := &fields{proto.NewEncoder().Int32(q.xid).Int32(op), left}
	if err := r.encode(e, step); err != nil {
		return request{}, nil, err
	}
	frame, err := damage(e.Encoder, step)
	return q, frame, err
}

// damage returns the frame, truncated or extended as the step says.
func damage(e *proto.Encoder, step Step) ([]byte, error) {
	truncate, err := step.number("truncate", 0)
	if err != nil {
		return nil, err
	}
	extra, err := step.number("extra", 0)
	if err != nil {
		return nil, err
	}
	whole := e.Raw(make([]byte, extra)).Frame()
	return proto.NewEncoder().Raw(whole[4 : len(whole)-int(truncate)]).Frame(), nil
}

// header is the header of a reply.
type header struct {
	xid  int32
	zxid int64
	code int32
}

// read reads up to the frame with an xid and passes the frame to then; it reports events
// before. It returns false if the server hung up instead.
func (r *Runner) read(s *session, xid int32, then func(header, *proto.Decoder)) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for s.line != nil {
		frame, err := s.line.next(timer.C)
		if err != nil {
			if errors.Is(err, errHungUp) {
				s.hangUp()
				r.say("%s closed", s.name)
			} else {
				r.say("! %s: %v", s.name, err)
			}
			return false
		}
		body := proto.NewDecoder(frame)
		head := header{xid: body.Int32(), zxid: body.Int64(), code: body.Int32()}
		if body.Err() != nil {
			r.say("! %s: reply of %d bytes", s.name, len(frame))
			continue
		}
		if head.xid == proto.XidEvent {
			r.event(s, body)
			if xid == proto.XidEvent {
				return true
			}
			continue
		}
		if head.zxid > 0 {
			s.zxid = head.zxid
			r.see(head.zxid)
		}
		if head.xid != xid {
			r.say("! %s: reply to %d, not to %d", s.name, head.xid, xid)
			continue
		}
		then(head, body)
		return true
	}
	return false
}

// reply reports an answer.
func (r *Runner) reply(s *session, q request, head header, body *proto.Decoder) {
	path, _ := r.path(q.step)
	s.answered(q.op, head.code, q.step, path)
	text := ""
	if head.code == proto.CodeOK || q.op == proto.OpMulti && body.Len() > 0 {
		text = r.answer(q.op, body)
	} else if q.op == proto.OpMultiRead && body.Len() > 0 { // an error and the results before it, possibly none
		text = " with" + r.answer(q.op, body) + " | end"
	} else if body.Len() > 0 {
		text = fmt.Sprintf(" !%d bytes with an error", body.Len())
	}
	r.say("%s %s %s%s", s.name, proto.CodeName(head.code), r.showZxid(head.zxid), text)
	if head.zxid > 0 {
		r.at = head.zxid
	}
	if head.zxid == -1 || q.op == proto.OpAuth && head.code != proto.CodeOK {
		r.ends(s)
	}
}

// ends waits for the server to hang up, possibly a moment after the last answer.
func (r *Runner) ends(s *session) {
	r.read(s, noXid, nil)
}

// noXid is an xid of no frame: reading up to it ends with the connection.
const noXid = -1000

// event reports a watch event.
func (r *Runner) event(s *session, body *proto.Decoder) {
	event, state, path := body.Int32(), body.Int32(), body.String()
	s.fired(event, path)
	text := fmt.Sprintf("%s event %s %s", s.name, proto.EventName(event), quote(path))
	if state != stateConnected || body.Err() != nil || body.Len() > 0 {
		text += fmt.Sprintf(" !state %d, %d bytes more", state, body.Len())
	}
	r.say("%s", text)
}

// stateConnected is Watcher.Event.KeeperState.SyncConnected.
const stateConnected = 3
