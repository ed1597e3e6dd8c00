package conformance

import (
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// connect makes a connection, for a new or an existing session.
//
//	a connect timeout=10s
//	a reconnect                 the same session
//	b reconnect as=a            a's session on a second connection
//	a reconnect password=wrong
//	a reconnect id=4711
//	a reconnect zxid=z+100      claims to have seen the zxid
//	a reconnect nowatches       leaves its watches unset
func (r *Runner) connect(step Step) error {
	s := &session{name: step.Session, password: make([]byte, proto.PasswordLength), timeout: 30 * time.Second, watches: map[watch]bool{}}
	if step.Op == "reconnect" {
		whose := step.Session
		if step.has("as") {
			whose = step.get("as")
		}
		before := r.sessions[whose]
		if before == nil {
			r.say("%s not connected", whose)
			return nil
		}
		*s = *before
		s.name, s.watches = step.Session, maps.Clone(before.watches)
	}
	if before := r.sessions[step.Session]; before != nil {
		before.hangUp()
	}
	s.line, s.mute = nil, false
	r.sessions[step.Session] = s
	frame, err := r.greeting(s, step)
	if err != nil {
		return err
	}
	conn, err := r.dial()
	if err != nil {
		return err
	}
	s.line = newLine(conn)
	s.line.write(frame)
	return r.welcome(s, step)
}

// greeting returns the frame that opens a connection.
func (r *Runner) greeting(s *session, step Step) ([]byte, error) {
	zxid, id, password := s.zxid, s.id, s.password
	var err error
	if step.has("zxid") {
		if zxid, err = r.zxid(step.get("zxid")); err != nil {
			return nil, err
		}
	}
	if step.has("id") {
		if id, err = step.number("id", 0); err != nil {
			return nil, err
		}
	}
	if step.has("password") {
		if password, err = hex.DecodeString(step.get("password")); err != nil {
			return nil, err
		}
	}
	if step.has("timeout") {
		if s.timeout, err = time.ParseDuration(step.get("timeout")); err != nil {
			return nil, err
		}
	}
	e := proto.NewEncoder().Int32(0).Int64(zxid).Int32(int32(s.timeout.Milliseconds())).Int64(id).Buffer(password)
	if !step.has("old") {
		e.Bool(step.has("readonly"))
	}
	return damage(e, step)
}

// welcome reads the server's answer to the greeting.
func (r *Runner) welcome(s *session, step Step) error {
	frame, err := s.line.next(time.After(patience))
	if errors.Is(err, errHungUp) {
		s.hangUp()
		r.say("%s closed", s.name)
		return nil
	}
	if err != nil {
		return err
	}
	body := proto.NewDecoder(frame)
	version, timeout, id, password := body.Int32(), body.Int32(), body.Int64(), body.Buffer()
	text := ""
	if version != 0 || len(password) != proto.PasswordLength {
		text = fmt.Sprintf(" !version %d, password of %d bytes", version, len(password))
	}
	if body.Len() > 0 && body.Bool() {
		text += " readonly"
	}
	if body.Err() != nil || body.Len() > 0 {
		text += " !malformed"
	}
	if id == 0 {
		r.say("%s expired timeout=%d%s", s.name, timeout, text)
		r.ends(s)
		return nil
	}
	again := id == s.id
	s.id, s.password = id, password
	r.open[id] = password
	if !again {
		r.name(s)
	}
	r.say("%s session of %s, timeout=%dms%s", s.name, r.owner(id), timeout, text)
	if again && len(s.watches) > 0 && !step.has("nowatches") {
		s.line.write(s.setWatches().Frame())
		r.read(s, proto.XidSetWatches, func(head header, body *proto.Decoder) {
			r.reply(s, request{op: proto.OpSetWatches}, head, body)
		})
	}
	return nil
}

// name gives a new session an unused name: "a", then "a2", "a3".
func (r *Runner) name(s *session) {
	taken := map[string]bool{}
	for _, name := range r.named {
		taken[name] = true
	}
	name := s.name
	for n := 2; taken[name]; n++ {
		name = fmt.Sprintf("%s%d", s.name, n)
	}
	r.named[s.id] = name
}
