package once

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/znodes"
)

// The errors of this package, for errors.Is.
var (
	// ErrDone is matched by the [DoneError] of a Do whose occurrence was started before.
	ErrDone = errors.New("done")
	// ErrSuperseded is matched by the [SupersededError] of a Do whose occurrence is before one that was started.
	ErrSuperseded = errors.New("superseded")
	// ErrRunning is matched by the [RunningError] of a Do with [WithSkip] during another run of the path.
	ErrRunning = errors.New("running")
	// ErrFormat is returned when an occurrence can't be ordered after the latest one, because it has another format. Both may
	// name the same event. [Once.Forget] lets the path take another format.
	ErrFormat = errors.New("format differs from that of the latest occurrence")
	// ErrTooEarly is returned when an occurrence of At is more than a minute ahead of the servers' clock. Either the clock of
	// this host is wrong, or theirs.
	ErrTooEarly = errors.New("too early")
	// ErrTooLate is returned after the time of [WithDeadline], by the servers' clock.
	ErrTooLate = errors.New("too late")
	// ErrRecord is returned when the znode of the record has a content that is no record. The text has the path of the znode.
	// Nothing runs until another client writes a record there, or deletes the znode.
	ErrRecord = errors.New("the znode holds no valid record")
	// ErrNotRecorded is returned when a run ended, and its end could not be recorded. With the default of at most once the
	// occurrence counts as done all the same. With [WithRetry] it may run again.
	ErrNotRecorded = errors.New("the end of the run is not recorded")
)

// Record is what is known about the latest occurrence of a path. Times are those of the clock of the process that has run it.
type Record struct {
	// Occurrence is the occurrence that was started last.
	Occurrence string
	// ID is the id of the process that started it.
	ID string
	// Token is the fencing token of the lease under which it was started.
	Token int64
	// Finished is true once the function returned nil.
	Finished bool
	// Runs is how often the occurrence was started: more than once only with [WithRetry].
	Runs int
	// StartedAt is the time of the start.
	StartedAt time.Time
	// FinishedAt is the time at which the function returned. It is zero if that is not recorded, because the function still
	// runs, its process ended, or its lease was lost.
	FinishedAt time.Time
	// Failure is the text of the function's error, cut to 1,024 bytes, or "panic"; "" without an error.
	Failure string
}

// String returns a line such as "2026-11-26T03:00 by web-1: finished at 2026-11-26T03:00:07Z".
func (r Record) String() string {
	if r.Occurrence == "" {
		return "none"
	}
	text := zkutil.Printable(r.Occurrence) + " by " + zkutil.Printable(r.ID) + ": "
	switch {
	case r.Finished:
		return text + "finished at " + r.FinishedAt.UTC().Format(time.RFC3339)
	case r.FinishedAt.IsZero():
		return text + "started at " + r.StartedAt.UTC().Format(time.RFC3339) + ", not known to have finished"
	default:
		return text + "failed at " + r.FinishedAt.UTC().Format(time.RFC3339) + ": " + zkutil.Printable(r.Failure)
	}
}

// DoneError is the error of a Do whose function was not called because the occurrence was started before. It matches
// ErrDone.
type DoneError struct {
	Occurrence string // of the call
	Last       Record // of its run
}

// Error returns "done: 2026-11-26T03:00 by web-1: finished at …".
func (e *DoneError) Error() string { return ErrDone.Error() + ": " + e.Last.String() }

// Unwrap returns ErrDone.
func (e *DoneError) Unwrap() error { return ErrDone }

// SupersededError is the error of a Do whose function was not called because a later occurrence was started before. The
// occurrence of the call may have run earlier, or never: only the latest one is recorded. It matches ErrSuperseded, and not
// ErrDone.
type SupersededError struct {
	Occurrence string // of the call
	Last       Record // of the latest occurrence
}

// Error returns "superseded: 2026-11-26T02:00, which may never have run, is before 2026-11-26T03:00 by web-1: finished at …".
func (e *SupersededError) Error() string {
	return ErrSuperseded.Error() + ": " + zkutil.Printable(e.Occurrence) + ", which may never have run, is before " + e.Last.String()
}

// Unwrap returns ErrSuperseded.
func (e *SupersededError) Unwrap() error { return ErrSuperseded }

// RunningError is the error of a Do with [WithSkip] whose function was not called because of another run of the path. It matches
// ErrRunning.
type RunningError struct {
	Occurrence string // of the call
	Last       Record // of the run
}

// Error returns "running: 2026-11-26T03:00 by web-1: started at …, not known to have finished".
func (e *RunningError) Error() string { return ErrRunning.Error() + ": " + e.Last.String() }

// Unwrap returns ErrRunning.
func (e *RunningError) Unwrap() error { return ErrRunning }

const (
	recordName    = "last" // of the znode, below the path
	maxOccurrence = 1024
	maxFailure    = 1024
)

func checkOccurrence(occurrence string) error {
	switch {
	case occurrence == "":
		return errors.New("occurrence: empty")
	case len(occurrence) > maxOccurrence:
		return fmt.Errorf("occurrence of %d bytes: more than %d", len(occurrence), maxOccurrence)
	case !utf8.ValidString(occurrence):
		return errors.New("occurrence: not valid UTF-8")
	case strings.ContainsFunc(occurrence, func(r rune) bool { return !unicode.IsPrint(r) }):
		return fmt.Errorf("occurrence %s: has a character that can't be printed", strconv.Quote(occurrence))
	}
	return nil
}

// refused is the error of a Do whose occurrence must not run, given the record. The caller of Do gets err.
type refused struct{ err error }

func (r *refused) Error() string { return r.err.Error() }

// refusal returns a *refused if an occurrence must not run, given the latest record, and otherwise nil.
func (o *Once) refusal(last Record, occurrence string) error {
	if last.Occurrence == "" {
		return nil
	}
	switch order, isOrdered := compare(occurrence, last.Occurrence); {
	case !isOrdered:
		return &refused{fmt.Errorf("%w: %s can't be ordered after %s", ErrFormat, zkutil.Printable(occurrence), last)}
	case order < 0:
		return &refused{&SupersededError{Occurrence: occurrence, Last: last}}
	case order == 0 && (last.Finished || !o.config.retries || o.config.maxRuns > 0 && last.Runs >= o.config.maxRuns):
		return &refused{&DoneError{Occurrence: occurrence, Last: last}}
	default:
		return nil
	}
}

// refusalBehindRun is refusal for WithSkip. It also refuses during a run, whose record has no end and the token of the lock's holder.
func (o *Once) refusalBehindRun(ctx context.Context, last Record, occurrence string) error {
	err := o.refusal(last, occurrence)
	mayRetry := o.config.retries && isSame(occurrence, last.Occurrence)
	if err != nil || last.Occurrence == "" || !last.FinishedAt.IsZero() || mayRetry {
		return err
	}
	holder, err := o.base.Queue.Leader(ctx)
	if err != nil {
		return fmt.Errorf("read the holder: %w", err)
	}
	if holder.Token != last.Token {
		return nil
	}
	return &refused{&RunningError{Occurrence: occurrence, Last: last}}
}

// wireRecord is a record as it is written (see the package comment).
type wireRecord struct {
	Occurrence string    `json:"occurrence"`
	ID         string    `json:"id"`
	Token      int64     `json:"token"`
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	Finished   bool      `json:"finished,omitempty"`
	Failure    string    `json:"failure,omitempty"`
	Runs       int       `json:"runs,omitempty"` // 0: one
}

func (r Record) encode() []byte {
	runs := r.Runs
	if runs == 1 {
		runs = 0
	}
	data, err := json.Marshal(wireRecord{r.Occurrence, r.ID, r.Token, r.StartedAt.UTC(), r.FinishedAt.UTC(), r.Finished, r.Failure, runs})
	if err != nil {
		panic(err) // only for a year beyond 9999
	}
	return data
}

// decode returns the record in data, and the zero Record for empty data.
func decode(data []byte) (Record, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return Record{}, nil
	}
	var w wireRecord
	if err := json.Unmarshal(data, &w); err != nil || w.Occurrence == "" {
		return Record{}, fmt.Errorf("%w: %q", ErrRecord, data[:min(len(data), 100)])
	}
	return Record{w.Occurrence, w.ID, w.Token, w.Finished, max(w.Runs, 1), w.StartedAt, w.FinishedAt, w.Failure}, nil
}

// read reads the record. A missing znode has the zero Record. own is the token of the caller's own start, 0 if it has none.
func (o *Once) read(ctx context.Context, own int64) (session.Node, Record, error) {
	for {
		isOutdated := o.starts.beginRead()
		node, err := znodes.Read(ctx, o.base.Queue.Session, o.record)
		if errors.Is(err, zk.ErrNoNode) {
			return session.Node{}, Record{}, nil
		}
		if err != nil {
			return session.Node{}, Record{}, fmt.Errorf("read the record: %w", err)
		}
		last, err := o.decode(node.Data)
		if err != nil || last.Token == own || !isOutdated(last) {
			return node, last, err
		}
		if err := o.awaitStart(ctx, last); err != nil {
			return session.Node{}, Record{}, err
		}
	}
}

func (o *Once) decode(data []byte) (Record, error) {
	last, err := decode(data)
	if err != nil {
		return Record{}, fmt.Errorf("%s: %w", o.record, err)
	}
	return last, nil
}

// shortened returns the first bytes of a text, as many as a record takes.
func shortened(text string) string {
	if len(text) > maxFailure {
		text = text[:maxFailure]
	}
	return strings.ToValidUTF8(text, "")
}
