package doctor

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// server is what a server says about itself.
type server struct {
	address    string
	err        error // it can't be reached
	version    string
	mode       string
	tick       time.Duration // 0: it does not say
	minTimeout time.Duration
	maxTimeout time.Duration
	syncLimit  int
}

func (s server) hasConf() bool { return s.tick > 0 }

// askTime bounds one question.
const askTime = 3 * time.Second

// ask asks a server by four-letter words. One that does not answer them is reachable all the same.
func ask(ctx context.Context, address string, settings *tls.Config) server {
	s := server{address: withPort(strings.TrimSpace(address))}
	var answer string
	if answer, s.err = fourLetterWord(ctx, s.address, settings, "srvr"); s.err != nil {
		return s
	}
	fields := parseFields(answer, ": ")
	s.version, _, _ = strings.Cut(fields["Zookeeper version"], "-")
	s.mode = fields["Mode"]
	if answer, s.err = fourLetterWord(ctx, s.address, settings, "conf"); s.err != nil {
		return s
	}
	fields = parseFields(answer, "=")
	milliseconds := func(name string) time.Duration {
		n, _ := strconv.Atoi(fields[name]) // 0: it does not say
		return time.Duration(n) * time.Millisecond
	}
	s.tick, s.minTimeout, s.maxTimeout = milliseconds("tickTime"), milliseconds("minSessionTimeout"), milliseconds("maxSessionTimeout")
	s.syncLimit, _ = strconv.Atoi(fields["syncLimit"])
	return s
}

func withPort(address string) string {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return net.JoinHostPort(address, "2181")
	}
	return address
}

// fourLetterWord returns the answer to a word, "" if the server closes the connection instead.
func fourLetterWord(ctx context.Context, address string, settings *tls.Config, word string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	conn, err := dial(ctx, address, settings)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", fmt.Errorf("%s: %w", word, err)
	}
	answer, _ := io.ReadAll(io.LimitReader(conn, 1<<16)) // a server that does not know the word breaks off
	return string(answer), nil
}

func dial(ctx context.Context, address string, settings *tls.Config) (net.Conn, error) {
	if settings == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", address)
	}
	return (&tls.Dialer{Config: settings}).DialContext(ctx, "tcp", address)
}

// parseFields returns the fields of lines "name<separator>value".
func parseFields(answer, separator string) map[string]string {
	fields := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader([]byte(answer))); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), separator); ok {
			fields[name] = strings.TrimSpace(value)
		}
	}
	return fields
}

// isOlder reports whether a version is older than major.minor. One that can't be read is not.
func isOlder(version string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(version, "%d.%d", &a, &b); n < 2 {
		return false
	}
	return a < major || a == major && b < minor
}
