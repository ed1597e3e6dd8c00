package zkadmin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// ErrNotServing is returned by Mode for a server that answers but takes no clients, as during an election.
var ErrNotServing = errors.New("not serving")

// dialTimeout bounds one exchange when the context has no earlier deadline.
const dialTimeout = 5 * time.Second

// FourLetter sends a four-letter word (srvr, mntr, wchs, …) and returns the whole answer.
func FourLetter(ctx context.Context, server, word string) (string, error) {
	conn, err := dial(ctx, server)
	if err != nil {
		return "", fmt.Errorf("zkadmin: %s: %w", word, err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, word); err != nil {
		return "", fmt.Errorf("zkadmin: %s: %w", word, err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return "", fmt.Errorf("zkadmin: %s: %w", word, err)
	}
	return string(answer), nil
}

// Mode returns what the server says it is: "leader", "follower", "observer" or "standalone". The error is ErrNotServing
// when the server runs and has no quorum, or when a port forwarder answers in place of a server that is not up yet.
func Mode(ctx context.Context, server string) (string, error) {
	answer, err := FourLetter(ctx, server, "srvr")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(answer) {
		if mode, ok := strings.CutPrefix(line, "Mode: "); ok {
			return strings.TrimSpace(mode), nil
		}
	}
	return "", fmt.Errorf("zkadmin: %s: %w", server, ErrNotServing)
}

// Watch is a session's watch on the data of a znode, or on its creation.
type Watch struct{ Path, Session string }

// Watches returns a server's watches on data. The server does not report watches on children.
func Watches(ctx context.Context, server string) ([]Watch, error) {
	answer, err := FourLetter(ctx, server, "wchp")
	if err != nil {
		return nil, err
	}
	var all []Watch
	path := ""
	for line := range strings.Lines(answer) {
		line = strings.TrimSuffix(line, "\n")
		session, isSession := strings.CutPrefix(line, "\t")
		switch {
		case isSession && path != "":
			all = append(all, Watch{path, session})
		case strings.HasPrefix(line, "/"):
			path = line
		case line != "":
			return nil, fmt.Errorf("zkadmin: wchp: %s answers %q", server, line)
		}
	}
	return all, nil
}

// dial connects and bounds everything done on the connection by the context's deadline or dialTimeout.
func dial(ctx context.Context, server string) (net.Conn, error) {
	deadline := time.Now().Add(dialTimeout)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	conn, err := (&net.Dialer{Deadline: deadline}).DialContext(ctx, "tcp", server)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(deadline); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// Watchers counts the sessions that watch a znode on a server.
func Watchers(ctx context.Context, server, path string) (count int, err error) {
	answer, err := FourLetter(ctx, server, "wchp")
	if err != nil {
		return 0, err
	}
	here := false
	for line := range strings.Lines(answer) {
		switch {
		case !strings.HasPrefix(line, "\t"):
			here = strings.TrimSpace(line) == path
		case here:
			count++
		}
	}
	return count, nil
}
