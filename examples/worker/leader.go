package main

import (
	"context"
	"fmt"
	"time"
)

// The table of the leader is for display only. It has one row.
const (
	leaderTable = `CREATE TABLE IF NOT EXISTS worker_leader (
		name    NAME   NOT NULL UNIQUE,
		leader  NAME   NOT NULL,
		token   BIGINT NOT NULL,
		began   BIGINT NOT NULL, -- in milliseconds since 1970
		terms   BIGINT NOT NULL, -- in which the job was claimed
		refused BIGINT NOT NULL  -- stale writes
	)`
	theLeader = `INSERT NEW INTO worker_leader (name, leader, token, began, terms, refused) VALUES ('job', '', 0, 0, 0, 0)`
)

// leadership describes the latest claim of the job, according to the database. Only writes of that leader are
// accepted, even if its term is over.
type leadership struct {
	Leader    string
	Token     int64 // 0: not claimed yet
	Since     time.Time
	Handovers int64
	Refused   int64 // stale writes
}

// noteLeader notes the first claim of a term.
func (s *store) noteLeader(ctx context.Context, token int64, leader string) error {
	_, err := s.db.ExecContext(ctx,
		`UPDATE worker_leader SET leader = ?, token = ?, began = ?, terms = terms + 1 WHERE name = 'job' AND token < ?`,
		leader, token, time.Now().UnixMilli(), token)
	if err != nil {
		return fmt.Errorf("note the leader: %w", err)
	}
	return nil
}

// noteRefusal counts a write that was refused for its stale token.
func (s *store) noteRefusal(ctx context.Context) error {
	if _, err := s.db.ExecContext(ctx, `UPDATE worker_leader SET refused = refused + 1 WHERE name = 'job'`); err != nil {
		return fmt.Errorf("note a refusal: %w", err)
	}
	return nil
}

func (s *store) leadership(ctx context.Context) (l leadership, err error) {
	var began, terms int64
	err = s.db.QueryRowContext(ctx, `SELECT leader, token, began, terms, refused FROM worker_leader WHERE name = 'job'`).
		Scan(&l.Leader, &l.Token, &began, &terms, &l.Refused)
	if err != nil {
		return leadership{}, fmt.Errorf("read the leader: %w", err)
	}
	l.Since, l.Handovers = time.UnixMilli(began), max(terms-1, 0)
	return l, nil
}
