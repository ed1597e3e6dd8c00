package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// errStale is returned when the job has another token than the writer's, because a later leader claimed the job.
// Nothing was written.
var errStale = errors.New("stale fencing token")

// The tables, in the dialect of openDB. worker_job has one row, with the token of the latest leader, the
// number of the last run and the due time of the next one. worker_run has the runs. No run number occurs twice, under
// any leader. Times are in milliseconds since 1970.
const (
	jobTable = `CREATE TABLE IF NOT EXISTS worker_job (
		name  NAME   NOT NULL UNIQUE,
		token BIGINT NOT NULL,
		runs  BIGINT NOT NULL,
		due   BIGINT NOT NULL -- 0: at once
	)`
	theJob   = `INSERT NEW INTO worker_job (name, token, runs, due) VALUES ('job', 0, 0, 0)`
	runTable = `CREATE TABLE IF NOT EXISTS worker_run (
		number  BIGINT NOT NULL UNIQUE,
		token   BIGINT NOT NULL,
		leader  NAME   NOT NULL,
		outcome NAME   NOT NULL,
		due     BIGINT NOT NULL,
		began   BIGINT NOT NULL,
		took    BIGINT NOT NULL -- in milliseconds
	)`
)

// The outcomes of a run.
const (
	outcomeDone    = "done"
	outcomeStopped = "stopped" // its term ended first
	outcomeFailed  = "failed"
)

// runRecord is one run of the job.
type runRecord struct {
	Number  int64
	Token   int64 // of the term of the run
	Leader  string
	Outcome string
	Due     time.Time
	Began   time.Time
	Took    time.Duration
}

// schedule is the next run.
type schedule struct {
	Number int64
	Due    time.Time // by the clock of the process that recorded the last run; zero: at once
}

// store is where the runs are recorded. Its methods are single statements or short
// transactions, safe for concurrent use, by other processes too. It works alike on SQLite,
// MySQL and MariaDB.
type store struct {
	db   *sql.DB
	kind string // for reports
}

// openStore opens the database named by dsn, described at the -db flag, and creates missing tables.
func openStore(ctx context.Context, dsn string) (*store, error) {
	db, kind, err := openDB(ctx, dsn, jobTable, theJob, runTable, leaderTable, theLeader)
	if err != nil {
		return nil, err
	}
	return &store{db: db, kind: kind}, nil
}

func (s *store) Close() error { return s.db.Close() }

// claim marks the job as the one of leader with this token, shuts out every earlier
// leader from then on, and returns the next run. Claiming again with the same token is
// fine. It returns errStale when a later leader was first.
//
// The claim precedes the read. A check of the token only at the final write is too late: a paused leader and its
// successor would both have read the same number.
func (s *store) claim(ctx context.Context, token int64, leader string) (schedule, error) {
	isFound, err := found(s.db.ExecContext(ctx,
		`UPDATE worker_job SET token = ? WHERE name = 'job' AND token <= ?`, token, token))
	if err != nil {
		return schedule{}, fmt.Errorf("claim the job: %w", err)
	}
	if !isFound {
		return schedule{}, fmt.Errorf("claim the job with token %d: %w", token, errStale)
	}
	if err := s.noteLeader(ctx, token, leader); err != nil {
		return schedule{}, err
	}
	return s.schedule(ctx)
}

// schedule returns the next run. It is for onlookers; a leader claims the job.
func (s *store) schedule(ctx context.Context) (next schedule, err error) {
	var due int64
	err = s.db.QueryRowContext(ctx, `SELECT runs + 1, due FROM worker_job WHERE name = 'job'`).Scan(&next.Number, &due)
	if err != nil {
		return schedule{}, fmt.Errorf("read the schedule: %w", err)
	}
	if due != 0 {
		next.Due = time.UnixMilli(due)
	}
	return next, nil
}

// record writes a run, counts it, and sets the due time of the next one, all in one transaction. Unless the job is
// still claimed with the run's token, it changes nothing and returns errStale.
//
// After any other error the run is recorded or not. Either way, the next claim returns the run that is due.
func (s *store) record(ctx context.Context, r runRecord, due time.Time) error {
	failed := func(err error) error {
		return fmt.Errorf("record run %d with token %d: %w", r.Number, r.Token, err)
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return failed(err)
	}
	defer func() { _ = tx.Rollback() }() // does nothing after Commit

	isFound, err := found(tx.ExecContext(ctx,
		`UPDATE worker_job SET runs = ?, due = ? WHERE name = 'job' AND token = ?`, r.Number, due.UnixMilli(), r.Token))
	if err != nil {
		return failed(err)
	}
	if !isFound {
		return failed(errStale)
	}
	_, err = tx.ExecContext(ctx,
		`INSERT INTO worker_run (number, token, leader, outcome, due, began, took) VALUES (?, ?, ?, ?, ?, ?, ?)`,
		r.Number, r.Token, r.Leader, r.Outcome, r.Due.UnixMilli(), r.Began.UnixMilli(), r.Took.Milliseconds())
	if err != nil {
		return failed(err)
	}
	if err := tx.Commit(); err != nil {
		return failed(err)
	}
	return nil
}

// lastRuns returns up to n runs, the latest first.
func (s *store) lastRuns(ctx context.Context, n int) ([]runRecord, error) {
	rows, err := s.db.QueryContext(ctx,
		`SELECT number, token, leader, outcome, due, began, took FROM worker_run ORDER BY number DESC LIMIT ?`, n)
	if err != nil {
		return nil, fmt.Errorf("read the last runs: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var runs []runRecord
	for rows.Next() {
		var r runRecord
		var due, began, took int64
		if err := rows.Scan(&r.Number, &r.Token, &r.Leader, &r.Outcome, &due, &began, &took); err != nil {
			return nil, fmt.Errorf("read the last runs: %w", err)
		}
		r.Due, r.Began, r.Took = time.UnixMilli(due), time.UnixMilli(began), time.Duration(took)*time.Millisecond
		runs = append(runs, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the last runs: %w", err)
	}
	return runs, nil
}

// reset forgets all runs and all leaders: for a demonstration, and for an ensemble that
// was built anew and numbers its tokens from the beginning.
func (s *store) reset(ctx context.Context) error {
	for _, statement := range []string{
		`DELETE FROM worker_run`,
		`UPDATE worker_job SET token = 0, runs = 0, due = 0 WHERE name = 'job'`,
		`UPDATE worker_leader SET leader = '', token = 0, began = 0, terms = 0, refused = 0 WHERE name = 'job'`,
	} {
		if _, err := s.db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("reset: %w", err)
		}
	}
	return nil
}
