package zktest

import (
	"fmt"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// Znode is one to begin with: see [Server.Seed].
type Znode struct {
	Path      string
	Data      []byte
	ACL       []zk.ACL      // none: open to all
	Session   int64         // whose ephemeral znode it is; 0: nobody's
	Container bool          // it goes once its children have gone
	TTL       time.Duration // it goes that long after its last change if it has no children; 0: it stays
}

// Seed makes znodes behind the back of every client, whose watches fire, and those above
// them where there are none: persistent and open to all. It panics on what a server would
// refuse, and on a session that is not alive.
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

// Put sets a znode's data behind the back of every client, whose watches fire. It
// makes the znode, and those above it, where there are none: persistent and open to all.
// It panics on a path that the server would refuse.
func (s *Server) Put(path string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !isValid(path) {
		panic(fmt.Sprintf("zktest: invalid path %q", path))
	}
	if s.tree.find(path) == nil {
		s.seedLocked(Znode{Path: path, Data: data})
		return
	}
	s.zxid++
	c := s.change()
	c.put(path, slices.Clone(data))
	s.commit(c)
}

func (s *Server) seedLocked(z Znode) {
	owner := s.ownerLocked(z)
	if !isValid(z.Path) {
		panic(fmt.Sprintf("zktest: invalid path %q", z.Path))
	}
	for dir := dirOf(z.Path); dir != ""; dir = dirOf(dir) {
		if n := s.tree.find(dir); n != nil && n.isEphemeral() {
			panic(fmt.Sprintf("zktest: %q is ephemeral and has no children", dir))
		}
	}
	acl := zk.WorldACL(zk.PermAll)
	if len(z.ACL) > 0 {
		var code int32
		if acl, code = resolve(z.ACL, nil); code != proto.CodeOK {
			panic(fmt.Sprintf("zktest: seed %q: no server takes the ACL %v", z.Path, z.ACL))
		}
	}
	s.zxid++
	c := s.change()
	for i := 1; i < len(z.Path); i++ {
		if dir := z.Path[:i]; z.Path[i] == '/' && s.tree.find(dir) == nil {
			c.add(dir, []byte{}, zk.WorldACL(zk.PermAll), 0)
		}
	}
	c.add(z.Path, slices.Clone(z.Data), acl, owner)
	s.commit(c)
}

// ownerLocked is what the znode's ephemeralOwner says.
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

// OpenSession makes a session that no client has, such as that of a process that has
// crashed: with its ephemeral znodes ([Server.Seed]) it lives for its timeout, unless
// [Server.Expire] ends it before.
func (s *Server) OpenSession(timeout time.Duration) (id int64) {
	if timeout < time.Millisecond {
		panic(fmt.Sprintf("zktest: a session of %v", timeout))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open(timeout).id
}
