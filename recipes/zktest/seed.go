package zktest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// Znode describes an initial znode for [Server.Seed].
type Znode struct {
	Path      string
	Data      []byte
	ACL       []zk.ACL      // empty: open to all
	Session   int64         // owner of an ephemeral znode; 0 if not ephemeral
	Container bool          // removed after its children
	TTL       time.Duration // removed this long after its last change if it has no children; 0: never
}

// Seed creates znodes without involving a client; clients' watches fire. Missing parents
// are created, persistent and open to all. Seed panics on a znode that the server would
// refuse, that already exists, or whose session is not alive.
func (s *Server) Seed(znodes ...Znode) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, z := range znodes {
		if s.tree.find(z.Path) != nil {
			panic(fmt.Sprintf("zktest: seed %q: there is one already", z.Path))
		}
		s.seedLocked(z)
	}
}

// Put sets a znode's data without involving a client; clients' watches fire. The znode
// and its parents are created if missing, persistent and open to all. Put panics on a
// path that the server would refuse.
func (s *Server) Put(path string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	checkPath(path)
	if s.tree.find(path) == nil {
		s.seedLocked(Znode{Path: path, Data: data})
		return
	}
	s.nextZxid()
	c := s.change()
	c.put(path, slices.Clone(data))
	s.commit(c)
}

func (s *Server) seedLocked(z Znode) {
	owner := s.ownerLocked(z)
	checkPath(z.Path)
	for dir := dirOf(z.Path); dir != ""; dir = dirOf(dir) {
		if n := s.tree.find(dir); n != nil && n.isEphemeral() {
			panic(fmt.Sprintf("zktest: %q is ephemeral and has no children", dir))
		}
	}
	acl := zk.WorldACL(zk.PermAll)
	if len(z.ACL) > 0 {
		var code int32
		if acl, code = resolve(z.ACL, nil, s.cfg.passwords != nil, s.cfg.tls != nil); code != proto.CodeOK {
			panic(fmt.Sprintf("zktest: seed %q: no server takes the ACL %v", z.Path, z.ACL))
		}
	}
	s.nextZxid()
	c := s.change()
	for i := 1; i < len(z.Path); i++ {
		if dir := z.Path[:i]; z.Path[i] == '/' && s.tree.find(dir) == nil {
			c.add(dir, []byte{}, zk.WorldACL(zk.PermAll), 0)
		}
	}
	c.add(z.Path, slices.Clone(z.Data), acl, owner)
	s.commit(c)
}

// ownerLocked returns the znode's ephemeralOwner.
func (s *Server) ownerLocked(z Znode) int64 {
	kinds := 0
	var owner int64
	if z.Session != 0 {
		s.checkSessionsLocked([]int64{z.Session})
		if s.sessions[z.Session] == nil {
			panic(fmt.Sprintf("zktest: seed %q: %s has ended", z.Path, label(z.Session)))
		}
		kinds, owner = kinds+1, z.Session
	}
	if z.Container {
		kinds, owner = kinds+1, proto.ContainerOwner
	}
	if z.TTL != 0 {
		if z.TTL < time.Millisecond || z.TTL.Milliseconds() > maxTTL {
			panic(fmt.Sprintf("zktest: seed %q: a TTL of %v", z.Path, z.TTL))
		}
		kinds, owner = kinds+1, proto.TTLOwner+z.TTL.Milliseconds()
	}
	if kinds > 1 {
		panic(fmt.Sprintf("zktest: seed %q: ephemeral, container or TTL, but one of them", z.Path))
	}
	return owner
}

// Delete removes a znode and all znodes below it without involving a client; clients'
// watches fire. If the znode does not exist, Delete does nothing. It panics on a path that
// no znode can have.
func (s *Server) Delete(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	checkPath(path)
	if isSpecial(path) || s.tree.nodes[path] == nil {
		return
	}
	s.nextZxid()
	c := s.change()
	var below []string
	for other := range s.tree.nodes {
		if strings.HasPrefix(other, path+"/") {
			below = append(below, other)
		}
	}
	slices.SortFunc(below, func(a, b string) int { return cmp.Compare(b, a) }) // children first
	for _, other := range append(below, path) {
		c.remove(other)
	}
	s.commit(c)
}

// SetSequence sets the number of the next sequential child of a znode. A real server
// counts to 2147483647 and stays there. SetSequence panics if the znode does not exist.
func (s *Server) SetSequence(path string, next int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.tree.find(path)
	if n == nil {
		panic(fmt.Sprintf("zktest: no znode %q", path))
	}
	n.creates = next
}

// OpenSession opens a session without a client, like that of a crashed process: together
// with its ephemeral znodes ([Server.Seed]) it lives for its timeout, unless
// [Server.Expire] ends the session earlier.
func (s *Server) OpenSession(timeout time.Duration) (id int64) {
	if timeout < time.Millisecond {
		panic(fmt.Sprintf("zktest: a session of %v", timeout))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open(timeout).id
}

// Backup is a copy of a server's disk at one moment, with the znodes, the sessions, and the last zxid. [Server.Backup]
// creates a Backup, and [Server.Restore] uses it, any number of times.
type Backup struct {
	tree     *tree
	zxid     int64
	sessions map[int64]time.Duration // by id, the timeouts granted at creation
}

// Backup copies everything that a real server keeps on its disk.
func (s *Server) Backup() *Backup {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &Backup{s.tree.clone(), s.zxid, make(map[int64]time.Duration, len(s.sessions))}
	for id, n := range s.sessions {
		b.sessions[id] = n.created
	}
	return b
}

// Restore replaces all data and sessions of the servers by a backup of this server. It has the effect of an operator
// who stops all servers, copies a backup into their data directories, and starts them again. Connections and the
// effects of Isolate and KeepShowing end. The sessions of the backup live again, with their ephemeral znodes, for one
// timeout from now. Sessions opened after the backup are lost.
//
// The last zxid is that of the backup. The server refuses a handshake with a later zxid by hanging up, as a real
// server does. So a client that saw a later transaction than the backup can't reconnect, even if the backup contains
// its session. After such a start the servers of an ensemble elect a leader, and a new epoch of zxids begins: call
// [Server.ElectLeader] for this effect.
func (s *Server) Restore(b *Backup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replaceLocked(b)
}

// Wipe empties the servers, with the effect of an operator who starts all servers with
// empty data directories. It equals [Server.Restore] with the backup of an unused server.
func (s *Server) Wipe() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replaceLocked(&Backup{tree: newTree(), zxid: firstZxid})
}

func (s *Server) replaceLocked(b *Backup) {
	for _, m := range s.members {
		m.view, m.ghosts = nil, nil
		m.drop()
	}
	for _, n := range s.sessions {
		n.timer.Stop()
	}
	s.tree, s.zxid, s.unused, s.sessions = b.tree.clone(), b.zxid, 0, make(map[int64]*session, len(b.sessions))
	for id, timeout := range b.sessions {
		s.addSession(id, timeout)
	}
}
