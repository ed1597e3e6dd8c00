package main

// pictures returns all pictures, one for each term of docs/concepts.md and one for the README.
func pictures() []picture {
	return []picture{
		{
			name: "lease", title: "The life of a lease (T is the session timeout)",
			lanes: []string{"Holder A", "Server's view", "Contender B"},
			bars: []bar{
				{0, 0, 8, "Acquire", idle},
				{0, 8, 28, "works, heartbeats", good},
				{0, 28, 64, "silence: no heartbeat is answered", bad},
				{0, 64, 100, "context ended: ErrSessionLost", idle},
				{1, 4, 82, "A's znode is first", busy},
				{1, 82, 100, "B's is first", busy},
				{2, 14, 82, "Acquire: waits", idle},
				{2, 82, 100, "holds, new token", good},
			},
			marks: []mark{{28, "last heartbeat"}, {64, "2T/3: trust ends"}, {82, "session expires"}},
		},
		{
			name: "ensemble", title: "Ensemble and quorum: a write is committed once two of three servers have it",
			lanes:  []string{"Client", "Server 1 (leader)", "Server 2", "Server 3"},
			bars:   []bar{{0, 5, 75, "write … answer", busy}, {1, 15, 70, "has the write: a quorum with server 2", good}, {2, 35, 70, "has the write", good}, {3, 5, 100, "cut off: still answers pings and reads", bad}},
			arrows: []arrow{{0, 1, 20, ""}, {1, 2, 40, ""}, {1, 0, 68, "committed"}},
		},
		{
			name: "session", title: "Session: outlives a connection, ends after T of silence",
			lanes: []string{"Connection", "Session"},
			bars: []bar{
				{0, 0, 30, "to server 1", good},
				{0, 36, 60, "to server 2", good},
				{0, 60, 100, "silent", bad},
				{1, 0, 90, "alive: ephemeral znodes exist", good},
				{1, 90, 100, "expired", bad},
			},
			marks: []mark{{60, "last sign of life"}, {90, "+ T"}},
		},
		{
			name: "znode", title: "Znodes: a tree of small files",
			lanes: []string{"/locks", "/locks/report", "", ""},
			bars: []bar{
				{0, 0, 100, "container: removed some time after its last child", busy},
				{1, 0, 100, "container: the directory of one lock", busy},
				{2, 8, 100, "_c_3f…-lock-0000000007   ephemeral (of session A), data: web-1", good},
				{3, 8, 100, "_c_9a…-lock-0000000008   ephemeral (of session B), data: web-2", idle},
			},
		},
		{
			name: "contender", title: "Contenders queue by the server's numbers; each watches the znode ahead",
			lanes:  []string{"…-lock-0000000007", "…-lock-0000000008", "…-lock-0000000009"},
			bars:   []bar{{0, 5, 60, "holds", good}, {1, 5, 64, "watches 7", idle}, {1, 64, 100, "holds", good}, {2, 5, 100, "watches 8", idle}},
			arrows: []arrow{{0, 1, 60, "its deletion wakes only 8"}},
		},
		{
			name: "trust", title: "Trust: only a committed write proves the session, for 2T/3",
			lanes: []string{"Heartbeats", "Lease", "Server's session"},
			bars: []bar{
				{0, 2, 8, "✓", good},
				{0, 12, 18, "✓", good},
				{0, 22, 28, "✗", bad},
				{0, 32, 38, "✗", bad},
				{1, 2, 56, "trusted: the work may continue", good},
				{1, 56, 100, "context ended", idle},
				{2, 0, 78, "alive", busy},
				{2, 78, 100, "expired", bad},
			},
			marks: []mark{{12, "last proof"}, {56, "+ 2T/3"}, {78, "expiry: after 3T/4 or more"}},
		},
		{
			name: "token", title: "Fencing token: the resource refuses the holder that slept",
			lanes:  []string{"Holder A, token 33", "Holder B, token 34", "Row in the database"},
			bars:   []bar{{0, 0, 22, "works", good}, {0, 22, 74, "paused (it can't know)", bad}, {0, 74, 100, "write refused", idle}, {1, 48, 70, "claims, writes", good}, {2, 0, 52, "token 33", busy}, {2, 52, 100, "token 34", busy}},
			arrows: []arrow{{1, 2, 52, "34 ≥ 33: accepted"}, {0, 2, 86, "33 < 34"}},
			marks:  []mark{{44, "A's session expires"}},
		},
		{
			name: "reentry", title: "Re-entry: the lease's context carries the hold",
			lanes: []string{"Acquire(ctx)", "Acquire(lease ctx)", "Acquire(other ctx)"},
			bars:  []bar{{0, 5, 80, "holds", good}, {1, 25, 60, "the same hold, no request", good}, {2, 25, 80, "waits: another contender", idle}, {2, 80, 100, "holds", good}},
			marks: []mark{{80, "last Release"}},
		},
		{
			name: "term", title: "Term: step-down ends the context, waits for the work, deletes the znode",
			lanes: []string{"Term's context", "Leader's function", "Znode", "Next leader"},
			bars: []bar{
				{0, 0, 45, "open", good},
				{0, 45, 100, "ended: ErrReleased", idle},
				{1, 3, 68, "works, then returns", good},
				{2, 0, 72, "exists", busy},
				{3, 10, 74, "waits", idle},
				{3, 74, 100, "leads", good},
			},
			marks: []mark{{45, "step-down"}, {72, "znode deleted"}},
		},
		{
			name: "cohort", title: "Cohort: the callers of one process share a znode",
			lanes: []string{"Process 1", "Process 2"},
			bars: []bar{
				{0, 0, 14, "caller 1", good},
				{0, 14, 28, "caller 2", good},
				{0, 28, 42, "caller 3", good},
				{0, 42, 56, "caller 4", good},
				{0, 56, 100, "queues again at the tail", idle},
				{1, 18, 58, "waits, at most 100 passes or 100 ms", idle},
				{1, 58, 100, "holds", good},
			},
		},
		{
			name: "revocation", title: "Revocation: a request, not a force",
			lanes:  []string{"Peer", "Holder"},
			bars:   []bar{{0, 20, 45, "AttemptRevoke", busy}, {1, 0, 45, "works", good}, {1, 45, 75, "Revoked() closed; finishes", good}, {1, 75, 100, "Release", idle}},
			arrows: []arrow{{0, 1, 42, "writes __REVOKE__ into the holder's znode"}},
		},
	}
}
