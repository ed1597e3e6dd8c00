package conformance

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/digestmd5"
	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// LoginUsers are the users of the server in [Logins], with their passwords.
var LoginUsers = map[string]string{"ann": "secret", "bob": "other"} //nolint:gochecknoglobals // a constant table

// LoginKind is how a server treats logins over SASL.
type LoginKind string

// The kinds of servers in [Logins].
const (
	LoginsUnknown  LoginKind = "SASL is not configured"
	LoginsOptional LoginKind = "SASL is configured"
	LoginsRequired LoginKind = "sessionRequireClientSASLAuth=true"
)

// LoginLines returns the lines that Logins returns for a server: those of ZooKeeper 3.8.0.
func LoginLines(kind LoginKind) []string {
	refusal, unlogged := "-115", []string{"exists: -101", "ping: 0", "close: 0", "auth: 0 | exists: -101"}
	switch kind {
	case LoginsUnknown:
		unknown := " | create: -114 | getACL: -101"
		refused := "sasl: 0 | null token" + unknown + unknown
		return loginLines([]string{
			refused, "sasl: 0 | null token | ping: 0", "sasl: 0 | null token", "sasl: 0 | null token",
			"sasl: 0 | null token | sasl: 0 | null token", refused + unknown,
		}, unlogged)
	case LoginsRequired:
		refusal = "-124"
		unlogged = []string{"exists: -124 | hang-up", "ping: -124 | hang-up", "close: -124 | hang-up", "auth: 0 | exists: -124 | hang-up"}
	case LoginsOptional:
	}
	return loginLines([]string{
		"sasl: 0 | sasl: 0 | proven | create: 0 | getACL: 0 | [{31 sasl ann}] | create: 0 | getACL: 0 | [{31 sasl ann}]",
		"sasl: 0 | sasl: " + refusal + " | hang-up",
		"sasl: 0 | sasl: " + refusal + " | hang-up",
		"sasl: 0",
		"sasl: 0 | sasl: " + refusal + " | hang-up",
		"sasl: 0 | sasl: 0 | proven | create: 0 | getACL: -102 | create: 0 | getACL: -102 | create: -114 | getACL: -101",
	}, unlogged)
}

func loginLines(logins, unlogged []string) []string {
	var lines []string
	for i, line := range append(logins, unlogged...) {
		lines = append(lines, loginScenes[i].name+" | "+line)
	}
	return lines
}

// loginScenes are what Logins plays, each on a connection of its own.
var loginScenes = []struct { //nolint:gochecknoglobals // a constant table
	name string
	play func(*loginScene)
}{
	{"right password", func(s *loginScene) { s.logIn("ann", "secret"); s.create("sasl", "ann"); s.create("auth", "") }},
	{"wrong password", func(s *loginScene) { s.logIn("ann", "wrong"); s.ping() }},
	{"unknown user", func(s *loginScene) { s.logIn("eve", "another") }}, // 3.8.0 takes the password of the login before
	{"a response without a challenge", func(s *loginScene) { s.send([]byte(`username="ann"`)) }},
	{"a malformed response", func(s *loginScene) { s.send([]byte{}); s.send([]byte(`username`)) }},
	{"another ACL", func(s *loginScene) {
		s.logIn("bob", "other")
		s.create("sasl", "ann")
		s.create("sasl", "")
		s.create("sasl", "a/b/c@d")
	}},
	{"no login: exists", func(s *loginScene) { s.exists() }},
	{"no login: ping", func(s *loginScene) { s.ping() }},
	{"no login: close", func(s *loginScene) { s.request(proto.OpCloseSession, 1, proto.NewEncoder()) }},
	{"no login: another credential", func(s *loginScene) {
		s.request(proto.OpAuth, proto.XidAuth, proto.NewEncoder().Int32(0).String("digest").Buffer([]byte("ann:secret")))
		s.exists()
	}},
}

// Logins plays logins over SASL, with DIGEST-MD5, and returns a line for each scene: what the server answers, message by message. The
// server has LoginUsers.
func Logins(dial Dial) ([]string, error) {
	var lines []string
	for i, scene := range loginScenes {
		conn, err := dial()
		if err != nil {
			return nil, err
		}
		s := &loginScene{conn: conn, line: scene.name, nodes: 10 * i}
		s.greet()
		scene.play(s)
		_ = conn.Close()
		if s.err != nil {
			return nil, fmt.Errorf("%s: %w", s.line, s.err)
		}
		lines = append(lines, s.line)
	}
	return lines, nil
}

// loginScene is one connection. After a hang-up, or an error, nothing is sent any more.
type loginScene struct {
	conn   net.Conn
	line   string
	isOver bool
	err    error
	nodes  int
}

func (s *loginScene) note(what string) { s.line += " | " + what }

// exchange sends a frame, and returns the answer, nil after a hang-up.
func (s *loginScene) exchange(frame []byte) *proto.Decoder {
	if s.isOver || s.err != nil {
		return nil
	}
	_ = s.conn.SetDeadline(time.Now().Add(20 * time.Second))
	var err error
	if len(frame) > 0 {
		_, err = s.conn.Write(frame)
	}
	var head [4]byte
	if err == nil {
		_, err = io.ReadFull(s.conn, head[:])
	}
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		s.isOver = true
		s.note("hang-up")
		return nil
	}
	if err != nil {
		s.err = err
		return nil
	}
	body := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, s.err = io.ReadFull(s.conn, body); s.err != nil {
		return nil
	}
	return proto.NewDecoder(body)
}

func (s *loginScene) greet() {
	if d := s.exchange(proto.NewEncoder().Int32(0).Int64(0).Int32(10_000).Int64(0).Buffer(make([]byte, proto.PasswordLength)).Frame()); d != nil {
		s.err = d.Err()
	}
}

// request sends a request, and notes the answer's code, and whether the connection ends.
func (s *loginScene) request(op, xid int32, body *proto.Encoder) *proto.Decoder {
	d := s.exchange(proto.NewEncoder().Int32(xid).Int32(op).Raw(body.Body()).Frame())
	if d == nil {
		return nil
	}
	gotXid, zxid, code := d.Int32(), d.Int64(), d.Int32()
	if s.err = d.Err(); s.err != nil {
		return nil
	}
	s.note(fmt.Sprintf("%s: %d", proto.OpName(op), code))
	if gotXid != xid {
		s.note(fmt.Sprintf("!xid %d", gotXid))
	}
	if code == proto.CodeLoginRequired || code == proto.CodeAuthFailed {
		if zxid != 0 {
			s.note(fmt.Sprintf("!zxid %d", zxid))
		}
		s.exchange(nil) // only the hang-up is left
	}
	return d
}

// send sends a message of a login, and returns the server's.
func (s *loginScene) send(message []byte) (answer []byte) {
	d := s.request(proto.OpSASL, 7, proto.NewEncoder().Buffer(message))
	if d == nil {
		return nil
	}
	if answer = d.Buffer(); answer == nil && !s.isOver {
		s.note("null token")
	}
	return answer
}

func (s *loginScene) logIn(user, password string) {
	client := digestmd5.NewClient(user, password)
	challenge := s.send([]byte{})
	if challenge == nil {
		return
	}
	response, err := client.Respond(challenge)
	if err != nil {
		s.err = err
		return
	}
	if proof := s.send(response); proof != nil {
		if s.err = client.Verify(proof); s.err == nil {
			s.note("proven")
		}
	}
}

func (s *loginScene) exists() {
	s.request(proto.OpExists, 2, proto.NewEncoder().String("/nobody").Bool(false))
}

func (s *loginScene) ping() { s.request(proto.OpPing, proto.XidPing, proto.NewEncoder()) }

// create creates an ephemeral znode with an ACL, and notes the ACL that the server keeps.
func (s *loginScene) create(scheme, id string) {
	s.nodes++
	path := fmt.Sprintf("/login-%d", s.nodes)
	if s.request(proto.OpCreate, 3, proto.NewEncoder().String(path).Buffer(nil).
		Int32(1).Int32(31).String(scheme).String(id).Int32(proto.FlagEphemeral)) == nil {
		return
	}
	if d := s.request(proto.OpGetACL, 4, proto.NewEncoder().String(path)); d != nil && d.Len() > 0 {
		s.note(fmt.Sprint(d.ACL()))
	}
}
