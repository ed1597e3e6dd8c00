package session

import (
	"context"
	"sync"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// lifecycle ends a session in the right order.
type lifecycle struct {
	s *Session

	begin       sync.Once       // of Close
	open        context.Context // ends when the phase is core.Closing
	endOpen     func()
	tasksCtx    context.Context // of the tasks; ends when the phase is core.Sealed
	endTasks    context.CancelFunc
	left        error           // the znodes left by the closed session, as an error; set before finished is closed
	patience    context.Context // of the first Shutdown; over with its context, after a call of Close, and when the session is finished
	endPatience context.CancelFunc
	finished    chan struct{} // closed when the session is finished

	works   zkutil.Group   // campaigns of leaders, and functions of Do; the session stands until they return
	tasks   sync.WaitGroup // the session's own goroutines
	calls   sync.WaitGroup // requests in zk.Conn
	connEnd connEnd

	// Guarded by Session.mu.
	workNames   map[string]int // number of works, by recipe and path
	returned    int            // number of works whose functions returned: see Entry.NoteReturned
	undoable    int            // number of writes that may have to be undone: see BeginUndoable
	isConnEnded bool           // zk.Conn ended
}

func newLifecycle() lifecycle {
	tasksCtx, endTasks := context.WithCancel(context.Background()) // the session's own; Close ends it
	open, endOpen := context.WithCancelCause(tasksCtx)
	return lifecycle{
		open: open, endOpen: func() { endOpen(zkutil.ErrShut) },
		tasksCtx: tasksCtx, endTasks: endTasks, finished: make(chan struct{}),
		workNames: map[string]int{}, connEnd: newConnEnd(),
	}
}

// connEnd coordinates the end of zk.Conn, which is slow without a session. See wireOwner.RoundPause.
type connEnd struct {
	done      chan struct{} // closed when zk.Conn ends
	pauseOnce sync.Once
	inPause   chan struct{} // closed when zk.Conn is held in RoundPause
	mayQuit   chan struct{} // closed when zk.Conn.Close is about to be called
}

func newConnEnd() connEnd {
	return connEnd{done: make(chan struct{}), inPause: make(chan struct{}), mayQuit: make(chan struct{})}
}
