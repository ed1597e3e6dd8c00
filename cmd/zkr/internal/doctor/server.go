package doctor

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// server is what a server says about itself.
type server struct {
	address         string
	dialErr         error // it can't be reached
	isSilent        bool  // it accepts connections, and answers no word
	isWithoutQuorum bool
	greetErr        error         // it gives no session
	greetTime       time.Duration // 0: it was not asked for one
	version         string
	mode            string
	tick            time.Duration // 0: it does not say
	minTimeout      time.Duration
	maxTimeout      time.Duration
	syncLimit       int
}

func (s server) hasConf() bool { return s.tick > 0 }

// isHung reports whether a server accepts connections and does nothing else.
func (s server) isHung() bool { return s.isSilent && (s.greetErr != nil || s.greetTime == 0) }

func (s server) isServing() bool { return s.greetErr == nil && s.greetTime > 0 }

// AskTime bounds one question.
const AskTime = 3 * time.Second

// ask asks a server by four-letter words. One that refuses them may serve clients all the same.
func ask(ctx context.Context, address string, settings *tls.Config) server {
	s := server{address: withPort(strings.TrimSpace(address))}
	answer, err := FourLetterWord(ctx, s.address, settings, "srvr")
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		s.isSilent = true
		return s
	case err != nil:
		s.dialErr = err
		return s
	}
	s.isWithoutQuorum = strings.Contains(answer, "not currently serving requests")
	fields := parseFields(answer, ": ")
	s.version, _, _ = strings.Cut(fields["Zookeeper version"], "-")
	s.mode = fields["Mode"]
	if answer, err = FourLetterWord(ctx, s.address, settings, "conf"); err != nil {
		return s // it is between two states
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

// greet asks a server that can be reached for a session.
func (s *server) greet(ctx context.Context, connect func(context.Context, []string, time.Duration) (*recipes.Client, error)) {
	if s.dialErr != nil || s.isWithoutQuorum {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, AskTime)
	defer cancel()
	began := time.Now()
	client, err := connect(ctx, []string{s.address}, AskTime)
	s.greetErr, s.greetTime = err, time.Since(began)
	if err == nil {
		closeSoon(ctx, client)
	}
}

func withPort(address string) string {
	if _, _, err := net.SplitHostPort(address); err != nil {
		return net.JoinHostPort(address, "2181")
	}
	return address
}

// FourLetterWord returns the answer to a word, "" if the server closes the connection instead. The error is
// os.ErrDeadlineExceeded if it accepts the connection, and does neither.
func FourLetterWord(ctx context.Context, address string, settings *tls.Config, word string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, AskTime)
	defer cancel()
	deadline, _ := ctx.Deadline()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if settings != nil {
		settings = settings.Clone()
		if settings.ServerName == "" {
			settings.ServerName, _, _ = net.SplitHostPort(address)
		}
		secure := tls.Client(conn, settings)
		if err := secure.Handshake(); err != nil {
			return "", err
		}
		conn = secure
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", fmt.Errorf("%s: %w", word, err)
	}
	answer, err := io.ReadAll(io.LimitReader(conn, maxAnswer))
	if len(answer) == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		return "", err
	}
	return string(answer), nil // a server that does not know the word breaks off
}

// maxAnswer bounds an answer: cons has a line for each connection.
const maxAnswer = 16 << 20

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
