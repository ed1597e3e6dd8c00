package main

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"regexp"
	"strings"
	"syscall"
	"time"
)

const interesting = `^zkrecipes_(election_leader|lock_lost_total|lock_count|lock_pending_requests|session_state|session_expirations_total|session_reconnects_total|session_proof_age_seconds)|^worker_stale`

func (n *night) evening(ctx context.Context) error {
	n.title("evening: all is well")
	n.show()
	n.zkr(ctx, "doctor")
	n.zkr(ctx, "ls", "-r", "/")
	n.health(ctx)
	n.metrics(ctx, interesting)
	return ctx.Err()
}

func (n *night) rollingRestart(ctx context.Context) error {
	n.title("the servers are restarted, one after the other")
	if err := n.servers.RollingRestart(ctx, nil); err != nil {
		return err
	}
	n.title("the last one serves again")
	n.show()
	n.health(ctx)
	n.metrics(ctx, `lock_lost_total|session_reconnects_total|session_expirations_total`)
	n.zkr(ctx, "ls", "-r", "/")
	return ctx.Err()
}

// latestTerm returns the worker with the latest start of a term in its log, and the time of that start.
func (n *night) latestTerm() (leader *worker, at time.Time) {
	leader, line := n.leaderLine()
	var record struct{ Time time.Time }
	_ = json.Unmarshal([]byte(line), &record)
	return leader, record.Time
}

func (n *night) leader() *worker {
	leader, _ := n.leaderLine()
	return leader
}

// leaderLine returns the worker with the latest start of a term in its log, and the line.
func (n *night) leaderLine() (_ *worker, line string) {
	var latest string
	var leader *worker
	for _, w := range n.workers {
		w.mu.Lock()
		for _, line := range w.lines { // each begins with its time
			if strings.Contains(line, `"msg":"leads"`) && line > latest {
				latest, leader = line, w
			}
		}
		w.mu.Unlock()
	}
	return leader, latest
}

func (n *night) cutLine(ctx context.Context) error {
	cut := n.workers[0]
	cut.forget()
	n.title("the line of %s falls silent; %s leads", cut.id, n.leader().id)
	for _, line := range n.lines {
		line.Hold()
	}
	if err := cut.await(ctx, "session lost"); err != nil {
		return err
	}
	n.title("%s knows", cut.id)
	n.show()
	n.health(ctx)
	n.metrics(ctx, `election_leader|session_state|proof_age`)
	n.zkr(ctx, "ls", "-r", "/")
	pause(ctx, sessionTimeout/2)
	n.title("the next one leads; the line is repaired")
	n.show()
	for _, line := range n.lines {
		line.Release()
		line.Cut()
	}
	if err := cut.await(ctx, "reconnected"); err != nil {
		return err
	}
	n.title("%s is back", cut.id)
	n.show()
	n.health(ctx)
	n.metrics(ctx, interesting)
	return ctx.Err()
}

func (n *night) pausedProcess(ctx context.Context) error {
	victim := n.leader()
	victim.forget()
	if err := victim.await(ctx, "run begins"); err != nil {
		return err
	}
	n.title("%s, the leader, is stopped in the middle of a run", victim.id)
	if err := victim.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for until := time.Now().Add(patience); n.leader() == victim; pause(ctx, 100*time.Millisecond) {
		if time.Now().After(until) {
			return fmt.Errorf("nobody leads after %s", victim.id)
		}
	}
	next := n.leader()
	next.forget()
	n.title("%s leads", next.id)
	n.show()
	n.zkr(ctx, "ls", "-r", "/")
	if err := next.await(ctx, "run recorded"); err != nil {
		return err
	}
	n.title("%s goes on", victim.id)
	if err := victim.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	for _, msg := range []string{"run failed", "reconnected"} {
		victim.mu.Lock()
		victim.judged = victim.shown
		victim.mu.Unlock()
		if err := victim.await(ctx, msg); err != nil {
			return err
		}
	}
	n.show()
	n.metrics(ctx, `election_leader|lock_lost_total|session_expirations_total|worker_stale`)
	n.page(ctx)
	return ctx.Err()
}

var (
	term = regexp.MustCompile(`<p id="term">(.*)</p>`)
	tag  = regexp.MustCompile(`<[^>]*>`)
)

// page prints what the status page says of the leaders.
func (n *night) page(ctx context.Context) {
	body, err := n.workers[0].get(ctx, "/")
	found := term.FindStringSubmatch(body)
	if err != nil || found == nil {
		fmt.Println("the status page says nothing:", err)
		return
	}
	fmt.Println("status page:", html.UnescapeString(tag.ReplaceAllString(found[1], "")))
}

func (n *night) stuckHolder(ctx context.Context) error {
	n.title("report-1 takes /locks/report and never ends; report-2 and report-3 want it")
	stuck := n.beginZkr(ctx, "lock", "--grace", "2s", "--id", "report-1", "/locks/report", "--", "sh", "-c", "trap '' TERM; while :; do sleep 1; done")
	pause(ctx, 2*time.Second) // so that it is first
	second := n.beginZkr(ctx, "lock", "-w", "12s", "--id", "report-2", "/locks/report", "--", "date")
	pause(ctx, 2*time.Second)
	third := n.beginZkr(ctx, "lock", "--id", "report-3", "/locks/report", "--", "echo", "the report is written")
	pause(ctx, 4*time.Second)
	n.zkr(ctx, "ls", "/locks/report")
	top := n.beginZkr(ctx, "top", "--every", "2s", "/")
	pause(ctx, 3*time.Second)
	_ = top.cmd.Process.Signal(syscall.SIGINT)
	n.finish(top)
	n.finish(second)
	n.title("the operator asks report-1 for the lock")
	n.zkr(ctx, "revoke", "--wait", "10s", "/locks/report")
	n.finish(stuck)
	n.finish(third)
	return ctx.Err()
}

func (n *night) morning(ctx context.Context) error {
	n.title("morning")
	n.show()
	n.health(ctx)
	n.metrics(ctx, interesting)
	n.zkr(ctx, "ls", "-r", "/")
	n.page(ctx)
	return ctx.Err()
}

// pause is a part of the night in which nothing is awaited.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
