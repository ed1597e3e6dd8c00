package chaos

import (
	"encoding/json"
	"io"
	"math"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// What happened.
type What string

// Everything that is written down.
const (
	Called     What = "called"     // start of an attempt; Text is its limit, Value the time of the limit
	Granted    What = "granted"    // end of an attempt with a lease; Text marks a read lock under the write lock
	Part       What = "part"       // one of several locks that are acquired together
	Failed     What = "failed"     // or without: Text says why
	Reacquired What = "reacquired" // the lease's context was used to acquire again; Token is the inner lease's
	Unnested   What = "unnested"   // that failed, though the context stands: Text says why
	Rereleased What = "rereleased"
	Asked      What = "asked"     // the lease was asked for: it is revoked
	Ended      What = "ended"     // the lease's context: Text is the cause
	Releasing  What = "releasing" // Release was called
	Released   What = "released"  // and returned
	Standing   What = "standing"  // the lease's context was still open
	Claiming   What = "claiming"  // the guarded row, with the lease's token
	Claimed    What = "claimed"
	Writing    What = "writing" // Value to the row
	Wrote      What = "wrote"
	Refused    What = "refused"  // the claim or the write failed: stale token
	Unsure     What = "unsure"   // no answer from the row
	Marked     What = "marked"   // the guarded znode was written, in transaction Zxid
	Unmarked   What = "unmarked" // the servers refused the write: the lease's znode is deleted
	Led        What = "led"      // HasLeadership said yes
	Ticked     What = "ticked"   // package once has run a tick: Text says which
	Repeated   What = "repeated" // and again, though it was run before
	Haunted    What = "haunted"  // the client left its server, which showed the deleted Znode
	Starved    What = "starved"  // the process did not run from Value on
	ShutDown   What = "shutdown" // a client, while Value functions were at work; Text is the error
	Deserted   What = "deserted" // Value of these still ran after the return of Shutdown
	Idle       What = "idle"     // all of the process's contenders are done
	Left       What = "left"     // the process ended; Text names leaked goroutines
)

// Event is one line of a history.
type Event struct {
	At    int64  `json:"at"`   // nanoseconds of the machine's monotonic clock
	Wall  int64  `json:"wall"` // milliseconds of the wall clock, which is the servers' too
	What  What   `json:"what"`
	By    string `json:"by"`              // the contender
	Proc  int    `json:"proc"`            // its process
	Path  string `json:"path,omitempty"`  // of the lock
	Try   int    `json:"try,omitempty"`   // numbers the contender's attempts
	Token int64  `json:"token,omitempty"` // of the lease
	Znode string `json:"znode,omitempty"` // of the lease
	Value int64  `json:"value,omitempty"`
	Zxid  int64  `json:"zxid,omitempty"`
	Text  string `json:"text,omitempty"`
}

// Now is the machine's monotonic clock, the same for all its processes.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // the clock is always there
	}
	return ts.Nano()
}

// clockOffset is by how much the wall clock is ahead of the monotonic one, in nanoseconds: by
// the closest of some readings, for between two of them the process may have to wait.
func clockOffset() (offset int64) {
	closest := int64(math.MaxInt64)
	for range 20 {
		before := Now()
		wall := time.Now().UnixNano()
		after := Now()
		if after-before < closest {
			closest, offset = after-before, wall-(before+after)/2
		}
	}
	return offset
}

// recorder stamps events and passes them on. Its methods may be called concurrently.
type recorder struct {
	proc int

	mu   sync.Mutex
	tell func(Event)
}

// newRecorder returns a recorder that writes a line per event.
func newRecorder(proc int, w io.Writer) *recorder {
	lines := json.NewEncoder(w)
	return &recorder{proc: proc, tell: func(e Event) { _ = lines.Encode(e) }} // without a reader, the test is over
}

func (r *recorder) record(e Event) {
	e.At, e.Wall, e.Proc = Now(), time.Now().UnixMilli(), r.proc
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tell(e)
}
