package once

import (
	"bytes"
	"cmp"
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
)

// The errors of this package, for errors.Is.
var (
	// ErrDone is matched by the [DoneError] of a Do whose occurrence somebody has started before, or a later one.
	ErrDone = errors.New("done")
	// ErrRecord is returned when the znode of the record has a content that is no record. The text has the path of the znode.
	// Nothing runs until somebody has written a record there, or has deleted the znode.
	ErrRecord = errors.New("the znode of the record has no record in it")
	// ErrNotRecorded is returned when a run has ended, and its end could not be recorded. With the default of at most once
	// the occurrence counts as done all the same. With [WithRetry] it may run again.
	ErrNotRecorded = errors.New("the end of the run is not recorded")
)

// Record is what is known about the latest occurrence of a path. Times are those of the clock of the process that has run it.
type Record struct {
	// Occurrence is the occurrence that was started last.
	Occurrence string
	// ID is the id of the process that has started it.
	ID string
	// Token is the fencing token of the lease under which it was started.
	Token int64
	// Finished is true once the function has returned nil.
	Finished bool
	// StartedAt is the time of the start.
	StartedAt time.Time
	// FinishedAt is the time at which the function has returned; zero if that is not recorded: the function still runs, its
	// process has ended, or its lease was lost.
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

// DoneError is the error of a Do whose function was not called, because the occurrence, or a later one, was
// started before. It matches ErrDone.
type DoneError struct {
	Occurrence string // of the call
	Last       Record // of the latest occurrence
}

// Error returns "done: 2026-11-26T03:00 by web-1: finished at …".
func (e *DoneError) Error() string {
	if e.Occurrence == e.Last.Occurrence {
		return ErrDone.Error() + ": " + e.Last.String()
	}
	return ErrDone.Error() + ": " + zkutil.Printable(e.Occurrence) + " is before " + e.Last.String()
}

// Unwrap returns ErrDone.
func (e *DoneError) Unwrap() error { return ErrDone }

// At returns the occurrence of an instant: RFC 3339 in UTC with nine digits of fractions, so that later instants are later
// occurrences on all hosts. Round the instant to the tick before: hosts do not wake up at the same nanosecond.
//
//	o.Do(ctx, once.At(time.Now().Truncate(time.Minute)), report)
func At(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000000Z") }

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

// compare returns the order of two occurrences. Numbers are compared as numbers, because as texts 10 comes before 9. A number
// comes before all others, because a comparison as texts would make a circle of 9, 10 and 1a, in which 9 runs again after 1a.
func compare(a, b string) int {
	switch aIsNumber, bIsNumber := isNumber(a), isNumber(b); {
	case aIsNumber && bIsNumber:
		a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	case aIsNumber:
		return -1
	case bIsNumber:
		return 1
	default:
		return strings.Compare(a, b)
	}
}

func isNumber(occurrence string) bool {
	return occurrence != "" && strings.IndexFunc(occurrence, func(r rune) bool { return r < '0' || r > '9' }) < 0
}

// isDone reports whether an occurrence must not run, given the latest record.
func (o *Once) isDone(last Record, occurrence string) bool {
	if last.Occurrence == "" {
		return false
	}
	order := compare(occurrence, last.Occurrence)
	return order < 0 || order == 0 && (last.Finished || !o.retries)
}

// wireRecord is a record as it is written: see the package comment.
type wireRecord struct {
	Occurrence string    `json:"occurrence"`
	ID         string    `json:"id"`
	Token      int64     `json:"token"`
	StartedAt  time.Time `json:"startedAt,omitzero"`
	FinishedAt time.Time `json:"finishedAt,omitzero"`
	Finished   bool      `json:"finished,omitempty"`
	Failure    string    `json:"failure,omitempty"`
}

func (r Record) encode() []byte {
	data, err := json.Marshal(wireRecord{r.Occurrence, r.ID, r.Token, r.StartedAt.UTC(), r.FinishedAt.UTC(), r.Finished, r.Failure})
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
	return Record{w.Occurrence, w.ID, w.Token, w.Finished, w.StartedAt, w.FinishedAt, w.Failure}, nil
}

// read reads the record. A missing znode has the zero Record. own is the token of the caller's own start, 0 if it has none.
func (o *Once) read(ctx context.Context, own int64) (session.Node, Record, error) {
	for {
		isOutdated := o.starts.beginRead()
		node, err := o.base.Queue.Session.Persistent().ReadOnce(ctx, o.record)
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
