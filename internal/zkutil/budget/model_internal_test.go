package budget

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// model is a second, naive implementation of a budget. It keeps lists, and computes everything else from them each time.
type model struct {
	*testing.T
	random  *rand.Rand
	b       *Budget
	calls   []*modelCall // waiting and running, in the order of the requests
	creates []*modelNode // without an answer
	nodes   []*modelNode // with a path
	short   []string     // the directories whose first waiter lacks nothing but bytes, the longest-waiting first
	paths   int          // how many there were
}

type modelCall struct {
	*Reservation
	dir                string
	bytes              int // for znodes yet to be created
	isWaiting, hasSent bool
}

type modelNode struct {
	*Charge
	call  *modelCall
	bytes int
	path  string
}

const modelLimit, modelContenders, modelBytes = 1000, 3, 60

// in returns the calls in a directory, "" for all.
func (m *model) in(dir string) (waiting, running []*modelCall) {
	for _, c := range m.calls {
		switch {
		case dir != "" && c.dir != dir:
		case c.isWaiting:
			waiting = append(waiting, c)
		default:
			running = append(running, c)
		}
	}
	return waiting, running
}

// bytesOf returns the bytes of a directory: those of its calls and znodes, and no fewer than any of its waiters needs.
func (m *model) bytesOf(dir string) (bytes int) {
	waiting, running := m.in(dir)
	for _, c := range running {
		bytes += c.bytes
	}
	for _, n := range slices.Concat(m.creates, m.nodes) {
		if n.call.dir == dir {
			bytes += n.bytes
		}
	}
	for _, c := range waiting {
		bytes = max(bytes, c.bytes)
	}
	return bytes
}

func (m *model) used() (bytes int) {
	for _, dir := range []string{"/0", "/1", "/2", "/3", "/4"} {
		bytes += m.bytesOf(dir)
	}
	return bytes
}

// firstShort returns the first waiter of a directory if it lacks nothing but bytes: another call may run, and all that run have sent a create.
func (m *model) firstShort(dir string) *modelCall {
	waiting, running := m.in(dir)
	if len(waiting) == 0 || len(running) >= modelContenders || slices.ContainsFunc(running, func(c *modelCall) bool { return !c.hasSent }) {
		return nil
	}
	return waiting[0]
}

// settle admits waiters after a change in a directory: first a waiter there, and then those of the directories that are short of bytes. Bytes that
// were in use before may be used again, even beyond the limit.
func (m *model) settle(dir string, before int) {
	for _, d := range append([]string{dir}, m.short...) {
		if first := m.firstShort(d); first != nil {
			first.isWaiting = false
			first.isWaiting = m.used() > max(modelLimit, before)
		}
		before = m.used()
	}
	m.short = slices.DeleteFunc(m.short, func(d string) bool { return m.firstShort(d) == nil })
	if m.firstShort(dir) != nil && !slices.Contains(m.short, dir) {
		m.short = append(m.short, dir)
	}
}

// request makes a request in one of the three ways, for bytes that are free, or that the contenders of the directory have, or for more.
func (m *model) request() (dir string) {
	c := &modelCall{dir: fmt.Sprint("/", m.random.IntN(5)), bytes: modelBytes + []int{0, 0, 0, 0, 1, 7, 120, 700}[m.random.IntN(8)]}
	isFree, isEnough := m.used()+c.bytes <= modelLimit, m.used()-m.bytesOf(c.dir)+c.bytes <= modelLimit
	waiting, running := m.in(c.dir)
	var err, want error
	switch m.random.IntN(8) {
	case 0:
		c.Reservation, err = m.b.ReserveAhead(c.dir, c.bytes)
		c.hasSent, isEnough = true, isFree
	case 1:
		c.Reservation, err = m.b.TryReserve(c.dir, c.bytes)
		if c.hasSent = true; !isFree || m.firstShort(c.dir) != nil {
			want = zkutil.ErrNotAcquired
		}
	default:
		c.Reservation, err = m.b.Request(c.dir, c.bytes)
		c.isWaiting = !isFree || len(waiting) > 0 || len(running) >= modelContenders
	}
	if !isEnough {
		want = zkutil.ErrSessionFull
	}
	if require.ErrorIs(m, err, want); err == nil {
		m.calls = append(m.calls, c)
	}
	return c.dir
}

// begin makes a random call that begins something. If that takes more bytes than were reserved, begin also returns these.
func (m *model) begin() (dir string, more int) {
	waiting, running := m.in("")
	switch kind := m.random.IntN(60); {
	case kind < 30:
		return m.request(), 0
	case kind < 38 && len(running) > 0:
		c := pick(m, running)
		c.MarkSent()
		c.hasSent = true
		return c.dir, 0
	case kind < 53 && len(running) > 0: // a create, for which an earlier znode of the call may have left too few bytes
		c := pick(m, running)
		missing := max(0, modelBytes-c.bytes)
		charge, err := c.Begin(modelBytes)
		if missing > 0 && m.used()+missing > modelLimit {
			require.ErrorIs(m, err, zkutil.ErrContenderLost)
			return "", 0
		}
		require.NoError(m, err)
		m.creates, c.bytes = append(m.creates, &modelNode{charge, c, modelBytes, ""}), c.bytes+missing-modelBytes
		return c.dir, missing
	case kind < 55 && len(m.nodes) > 0:
		n := pick(m, m.nodes)
		n.call = &modelCall{Reservation: m.b.Inherit(n.path), dir: n.call.dir, hasSent: true}
		m.calls = append(m.calls, n.call)
		return n.call.dir, 0
	case kind < 57 && len(m.nodes) > 0:
		n := pick(m, m.nodes)
		path := m.newPath()
		m.b.AddTwin(n.path, path)
		m.b.AddTwin(n.path, path)
		m.nodes = append(m.nodes, &modelNode{nil, n.call, len(path) + LengthField, path})
		return n.call.dir, len(path) + LengthField
	case kind >= 57 && len(waiting) > 0:
		return m.end(pick(m, waiting)), 0
	}
	return "", 0
}

// finish makes a random call that finishes something, as begin does.
func (m *model) finish() (dir string, more int) {
	_, running := m.in("")
	switch kind := m.random.IntN(40); {
	case kind < 5 && len(m.creates) > 0:
		n := pick(m, m.creates)
		n.End()
		return m.remove(n), 0
	case kind < 15 && len(m.creates) > 0:
		n := pick(m, m.creates)
		n.path = m.newPath()
		n.Bind(n.path)
		more = max(0, len(n.path)+LengthField-n.bytes)
		n.bytes += more
		m.creates, m.nodes = without(m.creates, n), append(m.nodes, n)
		return n.call.dir, more
	case kind < 28 && len(running) > 0:
		return m.end(pick(m, running)), 0
	case kind < 38 && len(m.nodes) > 0:
		n := pick(m, m.nodes)
		m.b.Free(n.path)
		m.b.Free(n.path)
		return m.remove(n), 0
	case kind >= 38 && len(m.short) <= 1 && m.used() <= modelLimit: // otherwise the order in which the charges end would matter
		m.b.EndSession()
		for len(m.nodes) > 0 {
			dir = m.remove(m.nodes[0])
		}
		return dir, 0
	}
	return "", 0
}

// step makes a call, and compares the budget with the model.
func (m *model) step(call func() (dir string, more int)) {
	before := m.used()
	if dir, more := call(); dir != "" {
		before += more
		m.settle(dir, before)
	}
	require.LessOrEqual(m, m.used(), max(modelLimit, before))
	m.requireSame()
}

func (m *model) newPath() string {
	m.paths++
	return fmt.Sprintf("/%05d%s", m.paths, strings.Repeat("x", m.random.IntN(modelBytes)))
}

// end ends a call, or makes a waiter give up.
func (m *model) end(c *modelCall) (dir string) {
	c.End()
	m.calls = without(m.calls, c)
	return c.dir
}

// remove removes a znode, whose bytes are those of its call again.
func (m *model) remove(n *modelNode) (dir string) {
	m.creates, m.nodes = without(m.creates, n), without(m.nodes, n)
	n.call.bytes += n.bytes
	return n.call.dir
}

// requireSame compares the budget with the model.
func (m *model) requireSame() {
	waiting, _ := m.in("")
	dirs, unnamed, paths := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, c := range m.calls {
		require.Equal(m, !c.isWaiting, c.IsGiven())
		if dirs[c.dir] = true; !c.isWaiting && c.bytes > 0 {
			unnamed[c.dir] = true
		}
	}
	for _, n := range m.creates {
		dirs[n.call.dir], unnamed[n.call.dir] = true, true
	}
	for _, n := range m.nodes {
		dirs[n.call.dir], paths[n.path] = true, true
	}
	require.Equal(m, Usage{m.used(), len(dirs), len(paths), len(waiting)}, m.b.Usage())
	gotPaths, gotUnnamed := m.b.Nodes()
	require.Equal(m, slices.Sorted(maps.Keys(paths)), gotPaths)
	require.Equal(m, slices.Sorted(maps.Keys(unnamed)), gotUnnamed)
}

func pick[T any](m *model, list []T) T { return list[m.random.IntN(len(list))] }

func without[T comparable](list []T, e T) []T {
	return slices.DeleteFunc(list, func(other T) bool { return other == e })
}

// For any calls and answers, a budget has the same bytes in use as the model, the same calls wait, and the same requests fail. When the running
// calls and the znodes end one by one, every waiter is admitted, and in the end no byte is in use.
func TestBudgetModel(t *testing.T) {
	for seed := range testkit.Shorter[uint64](150, 50) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			m := &model{T: t, random: rand.New(rand.NewPCG(seed, 0)), b: New(modelLimit)}
			m.b.contenders = modelContenders
			for range 300 {
				m.step([]func() (string, int){m.begin, m.begin, m.begin, m.finish, m.finish}[m.random.IntN(5)])
			}
			for len(m.calls)+len(m.nodes)+len(m.creates) > 0 {
				m.step(m.finish)
			}
			require.Zero(t, m.b.saved)
			require.Zero(t, m.b.short.Len())
		})
	}
}
