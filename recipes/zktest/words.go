package zktest

import (
	"bufio"
	"fmt"
	"net"
	"slices"
	"strings"
)

// words are ZooKeeper's four-letter words. A word takes the place of the handshake, and the server ends the
// connection after the answer. Words without an answer here are refused, as by a real server whose operator did not
// list them.
var words = map[string]func(*member) string{ //nolint:gochecknoglobals // a constant table
	"ruok": func(*member) string { return "imok" },
	"srvr": whileServing((*member).describe),
	"conf": whileServing((*member).describeConfig),
	"cons": whileServing((*member).describeConnections),
	"crst": nil, "dirs": nil, "dump": nil, "envi": nil, "gtmk": nil, "hash": nil, "isro": nil,
	"mntr": nil, "srst": nil, "stat": nil, "stmk": nil, "wchc": nil, "wchp": nil, "wchs": nil,
}

// whileServing returns the answer to a word that needs a server with a quorum.
func whileServing(answer func(*member) string) func(*member) string {
	return func(m *member) string {
		if !m.srv.hasQuorum() {
			return "This ZooKeeper instance is not currently serving requests\n"
		}
		return answer(m)
	}
}

// answerWord answers if the client sent a word instead of a handshake.
func (l *line) answerWord(in *bufio.Reader) (isWord bool) {
	head, _ := in.Peek(4) // the next read has the error
	answer, isWord := words[string(head)]
	if !isWord {
		return false
	}
	l.srv.mu.Lock()
	defer l.srv.mu.Unlock()
	if answer == nil {
		l.push(fmt.Appendf(nil, "%s is not executed because it is not in the whitelist.\n", head))
	} else {
		l.push([]byte(answer(l.server)))
	}
	l.finish()
	return true
}

func (m *member) describe() string {
	s := m.srv
	mode := "follower"
	switch isRunning := func(m *member) bool { return !m.stopped }; {
	case len(s.members) == 1:
		mode = "standalone"
	case s.members[slices.IndexFunc(s.members, isRunning)] == m:
		mode = "leader"
	}
	product, version, _ := strings.Cut(s.cfg.traits.name, " ")
	if product == "ZooKeeper" {
		product, version = "Zookeeper", version+"-zktest"
	} else {
		product, version = s.cfg.traits.name, "zktest"
	}
	return fmt.Sprintf("%s version: %s\nConnections: %d\nZxid: %#x\nMode: %s\nNode count: %d\n",
		product, version, m.connections(), m.lastZxid(), mode, len(s.tree.nodes))
}

func (m *member) describeConfig() string {
	_, port, _ := net.SplitHostPort(m.address)
	return fmt.Sprintf("clientPort=%s\ntickTime=%d\nmaxClientCnxns=0\nminSessionTimeout=%d\nmaxSessionTimeout=%d\nserverId=%d\n",
		port, m.srv.cfg.tick.Milliseconds(), m.minTimeout.Milliseconds(), m.maxTimeout.Milliseconds(), slices.Index(m.srv.members, m))
}

// describeConnections has a line for each connection, those without a session included.
func (m *member) describeConnections() string {
	var list []string
	for l := range m.srv.lines {
		switch address := l.conn.RemoteAddr(); {
		case l.server != m:
		case l.session == nil:
			list = append(list, fmt.Sprintf(" /%v[0](queued=%d)\n", address, len(l.inbox)))
		default:
			list = append(list, fmt.Sprintf(" /%v[1](queued=%d,sid=%#x,to=%d)\n", address, len(l.inbox), l.session.id, l.session.timeout.Milliseconds()))
		}
	}
	slices.Sort(list)
	return strings.Join(list, "") + "\n"
}

// connections returns the number of the server's connections.
func (m *member) connections() (n int) {
	for l := range m.srv.lines {
		if l.server == m {
			n++
		}
	}
	return n
}
