package interop_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/integration/interop/agent"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes"
	"github.com/zkrecipes/zkrecipes/recipes/mutex"
)

// language is one implementation of the lock.
type language struct {
	name string
	// open opens a session, which ends with the test.
	open func(t *testing.T, o options) session
	// tries reports that the language can ask for the lock without waiting.
	tries bool
}

// options are those of a session.
type options struct {
	namespace string // everything is below /namespace
	auth      string // user:password, who alone has access to what the session makes
}

// session makes contenders.
type session interface {
	contender(t *testing.T, path, id string) contender
}

// contender stands in a lock's queue, once at a time.
type contender interface {
	lock() error
	try() (bool, error)
	unlock() error
}

var (
	golang     = language{name: "Go", tries: true, open: openGo}
	javaLang   = language{name: "Curator", tries: true, open: openJava}
	pythonLang = language{name: "kazoo", tries: true, open: openPython("curator")}
	zkLock     = language{name: "zk.Lock", open: openZkLock}
	// kazooOwn has kazoo's own znode names, and knows Curator's.
	kazooOwn = language{name: "kazoo with its own names", tries: true, open: openPython("own")}
	// kazooAlone is kazoo with default settings.
	kazooAlone = language{name: "kazoo as it comes", tries: true, open: openPython("alone")}

	// languages get on with each other.
	languages = []language{golang, javaLang, pythonLang, zkLock}
)

type goSession struct{ client *recipes.Client }

func openGo(t *testing.T, o options) session {
	t.Helper()
	return goSession{connect(t, o)}
}

// connect opens a session of this library.
func connect(t *testing.T, o options) *recipes.Client {
	t.Helper()
	opts := []recipes.Option{recipes.WithSessionTimeout(calm), recipes.WithNamespace(o.namespace)}
	if o.auth != "" {
		opts = append(opts, recipes.WithAuth("digest", []byte(o.auth)), recipes.WithACL(digest(o.auth)...))
	}
	servers := theWorld(t).servers.Servers() // which may take a while, before the clock runs
	return testclient.Dial(t, servers, opts...)
}

// digest gives one user all rights.
func digest(auth string) []zk.ACL {
	user, password, _ := strings.Cut(auth, ":")
	return zk.DigestACL(zk.PermAll, user, password)
}

func (s goSession) contender(t *testing.T, path, id string) contender {
	t.Helper()
	m, err := mutex.New(s.client, path, mutex.WithID(id))
	require.NoError(t, err)
	return &goContender{ctx: t.Context(), mutex: m}
}

type goContender struct {
	ctx   context.Context // the test's
	mutex *mutex.InterProcessMutex
	lease *recipes.Lease // of the latest success
}

func (c *goContender) lock() error {
	lease, err := c.mutex.Acquire(c.ctx)
	c.lease = lease
	return err
}

func (c *goContender) try() (bool, error) {
	lease, err := c.mutex.TryAcquire(c.ctx)
	c.lease = lease
	if errors.Is(err, recipes.ErrNotAcquired) {
		return false, nil
	}
	return err == nil, err
}

func (c *goContender) unlock() error { return c.lease.Release() }

// agentSession is a client of a peer process.
type agentSession struct {
	process *agent.Process
	client  string
	nodes   []string // kazoo's names of znodes
}

func openJava(t *testing.T, o options) session {
	t.Helper()
	return openAgent(t, theWorld(t).java, o)
}

func openPython(nodes string) func(t *testing.T, o options) session {
	return func(t *testing.T, o options) session {
		t.Helper()
		return openAgent(t, theWorld(t).python, o, nodes)
	}
}

func openAgent(t *testing.T, process *agent.Process, o options, nodes ...string) session {
	t.Helper()
	client := unique("client")
	command := []string{"connect", client}
	if o.namespace != "" {
		command = append(command, "namespace="+o.namespace)
	}
	if o.auth != "" {
		command = append(command, "auth="+o.auth)
	}
	process.Call(t, command...)
	t.Cleanup(func() { process.Call(t, "disconnect", client) })
	return agentSession{process, client, nodes}
}

func (s agentSession) contender(t *testing.T, path, id string) contender {
	t.Helper()
	name := unique("mutex")
	command := append([]string{"mutex", name, s.client, path}, s.nodes...)
	s.process.Call(t, append(command, id)...)
	return &agentContender{s.process, name}
}

type agentContender struct {
	process *agent.Process
	name    string
}

func (c *agentContender) do(command string, args ...string) ([]string, error) {
	return c.process.Go(append([]string{command, c.name}, args...)...).Result()
}

func (c *agentContender) lock() error {
	_, err := c.do("acquire")
	return err
}

func (c *agentContender) try() (bool, error) {
	node, err := c.do("tryacquire", "0")
	return len(node) > 0, err
}

func (c *agentContender) unlock() error {
	_, err := c.do("release")
	return err
}

type zkSession struct {
	conn *zk.Conn
	root string
	acl  []zk.ACL
}

func openZkLock(t *testing.T, o options) session {
	t.Helper()
	conn := testkit.Conn(t, theWorld(t).servers.Servers(), calm)
	s := zkSession{conn: conn, acl: zk.WorldACL(zk.PermAll)}
	if o.namespace != "" {
		s.root = "/" + o.namespace
	}
	if o.auth != "" {
		s.acl = digest(o.auth)
		require.NoError(t, conn.AddAuth("digest", []byte(o.auth)))
	}
	return s
}

func (s zkSession) contender(t *testing.T, path, id string) contender {
	t.Helper()
	return &zkContender{zk.NewLock(s.conn, s.root+path, s.acl), id}
}

type zkContender struct {
	*zk.Lock
	id string
}

func (c *zkContender) lock() error        { return c.LockWithData([]byte(c.id)) }
func (c *zkContender) try() (bool, error) { return false, errors.New("zk.Lock can't try") }
func (c *zkContender) unlock() error      { return c.Unlock() }
