package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/bench/peer"
	"github.com/zkrecipes/zkrecipes/integration/interop/agent"
)

// worker is the process under load.
type worker struct {
	peer  peer.Peer
	clock clock

	mu       sync.Mutex
	sessions []peer.Session              // guarded by mu
	closed   chan struct{}               // guarded by mu; closed with these sessions
	crowds   map[string]*crowd           // guarded by mu; by name
	holders  map[string][]peer.Contender // guarded by mu; by name
}

// Serve makes the process a worker for one of the peers. It returns at the end of the input.
func Serve(in io.Reader, out io.Writer, peers []peer.Peer, name string) error {
	c, err := newClock()
	if err != nil {
		return err
	}
	for _, p := range peers {
		if p.Name == name {
			w := &worker{peer: p, clock: c, crowds: map[string]*crowd{}, holders: map[string][]peer.Contender{}}
			agent.Serve(in, out, w.run)
			_, err := w.closeSessions()
			return err
		}
	}
	return fmt.Errorf("load: there is no peer %q", name)
}

func (w *worker) run(command []string) ([]string, error) {
	ctx := context.Background()
	verb, name, args := command[0], command[1], &arguments{words: command[2:]}
	var words []string
	var err error
	switch verb {
	case "open":
		words, err = nil, w.open(ctx, args.text(), args.number())
	case "prepare":
		words, err = nil, w.prepare(ctx, name, args)
	case "loop":
		words, err = nil, w.loop(ctx, name, args)
	case "hold":
		words, err = w.hold(ctx, name, args.text(), args.number())
	case "release":
		words, err = w.release(name)
	case "latch":
		words, err = nil, w.latch(ctx, args)
	case "memory":
		words, err = memory()
	case "close":
		words, err = w.closeSessions()
	default:
		err = errors.New("load: no such command: " + verb)
	}
	return words, errors.Join(err, args.err)
}

// arguments are the words of a command that were not read yet.
type arguments struct {
	words []string
	err   error
}

func (a *arguments) text() string {
	if len(a.words) == 0 {
		a.err = errors.New("load: too few words")
		return ""
	}
	word := a.words[0]
	a.words = a.words[1:]
	return word
}

func (a *arguments) number() int {
	n, err := strconv.Atoi(a.text())
	a.err = errors.Join(a.err, err)
	return n
}

func (w *worker) open(ctx context.Context, address string, sessions int) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, peer.SessionTimeout)
	defer cancel()
	if w.closed == nil {
		w.closed = make(chan struct{})
	}
	for range sessions {
		s, err := w.peer.Open(ctx, address)
		if err != nil {
			return err
		}
		w.sessions = append(w.sessions, s)
	}
	return nil
}

// opened returns the sessions, and a function that closes them.
func (w *worker) opened() ([]peer.Session, <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sessions, w.closed
}

func (w *worker) closeSessions() ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	errs := make([]error, len(w.sessions))
	var closing sync.WaitGroup
	for i, s := range w.sessions {
		closing.Go(func() { errs[i] = s.Close() })
	}
	closing.Wait()
	if w.closed != nil {
		close(w.closed)
	}
	w.sessions, w.closed = nil, nil
	clear(w.holders) // they would keep the state of their sessions
	return nil, errors.Join(errs...)
}

func (w *worker) prepare(ctx context.Context, name string, args *arguments) error {
	path, locks, first, stride, all := args.text(), args.number(), args.number(), args.number(), args.number()
	file := args.text()
	if args.err != nil {
		return args.err
	}
	baskets, err := readBaskets(file)
	if err != nil {
		return err
	}
	sessions, closed := w.opened()
	c, err := newCrowd(ctx, sessions, w.clock, path, locks, baskets, first, stride, all)
	if err != nil {
		return err
	}
	c.closed = closed
	w.mu.Lock()
	defer w.mu.Unlock()
	w.crowds[name] = c
	return nil
}

func (w *worker) loop(ctx context.Context, name string, args *arguments) error {
	file := args.text()
	l := loop{begin: int64(args.number()), pairs: args.number(), hold: time.Duration(args.number())}
	w.mu.Lock()
	c := w.crowds[name]
	delete(w.crowds, name)
	w.mu.Unlock()
	if args.err != nil || c == nil {
		return errors.Join(args.err, errors.New("load: a loop that was not prepared"))
	}
	spans, err := c.run(ctx, l)
	return errors.Join(err, c.close(), writeSpans(file, spans))
}

func (w *worker) hold(ctx context.Context, name, path string, locks int) ([]string, error) {
	called := w.clock.now()
	sessions, _ := w.opened()
	var holders []peer.Contender
	for i := range locks {
		holder, err := sessions[i%len(sessions)].Contender(ctx, lockPath(path, locks, i))
		if err != nil {
			return nil, err
		}
		if err := holder.Lock(ctx); err != nil {
			return nil, err
		}
		holders = append(holders, holder)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holders[name] = holders
	return numbers(called, w.clock.now()), nil
}

func (w *worker) release(name string) ([]string, error) {
	w.mu.Lock()
	holders := w.holders[name]
	delete(w.holders, name)
	w.mu.Unlock()
	called := w.clock.now()
	for _, holder := range holders {
		if err := holder.Unlock(); err != nil {
			return nil, err
		}
	}
	done := w.clock.now()
	return numbers(called, done), closeContenders(holders)
}

func numbers(values ...int64) []string {
	words := make([]string, len(values))
	for i, v := range values {
		words[i] = strconv.FormatInt(v, 10)
	}
	return words
}

// memory answers with the bytes of the heap and of stacks after a collection, the resident bytes, and the goroutines.
func memory() ([]string, error) {
	debug.FreeOSMemory()
	debug.FreeOSMemory() // what finalizers and pools kept from the first
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	resident, err := residentBytes()
	return numbers(int64(m.HeapAlloc), int64(m.StackInuse), resident, int64(runtime.NumGoroutine())), err
}

func residentBytes() (int64, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kilobytes, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")), 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, errors.New("load: no VmRSS")
}
