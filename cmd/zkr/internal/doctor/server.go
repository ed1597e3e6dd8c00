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

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/dial"
)

// server is what a server says about itself.
type server struct {
	address         string
	dialErr         error  // it can't be reached
	refusal         string // the reason for a refusal before a session, with a remedy
	isSilent        bool   // it accepts connections, and answers no word
	isWithoutQuorum bool
	greetErr        error         // it gives no session
	greetTime       time.Duration // 0: not tried
	version         string
	isZktest        bool // it is zkr dev, or a test's server
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

// ask asks a server by four-letter words. A server that refuses these words may still serve clients.
func ask(ctx context.Context, address string, settings *tls.Config) server {
	s := server{address: withPort(strings.TrimSpace(address))}
	answer, err := "", error(nil)
	if answer, s.refusal, err = greeting(ctx, s.address, settings); s.refusal != "" {
		return s
	}
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
	version, build, _ := strings.Cut(fields["Zookeeper version"], "-")
	s.version, s.isZktest = version, build == "zktest"
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

// greeting asks a server for its state. Without an answer, refusal has the reason, if it can be found. A server that
// speaks only TLS is as silent as one that hangs, so the search for the reason begins within AskTime.
func greeting(ctx context.Context, address string, settings *tls.Config) (answer, refusal string, err error) {
	done := make(chan struct{})
	go func() { // ends within AskTime; joined below
		defer close(done)
		answer, err = FourLetterWord(ctx, address, settings, "srvr")
	}()
	if !zkutil.Within(done, AskTime-time.Second) {
		reason := refusalOf(ctx, address, settings, os.ErrDeadlineExceeded)
		if <-done; answer == "" {
			refusal = reason
		}
		return answer, refusal, err
	}
	if answer == "" {
		refusal = refusalOf(ctx, address, settings, err)
	}
	return answer, refusal, err
}

// refusalOf returns the reason, with a remedy, why a server did not answer or refused TLS with err. It returns "" if the reason
// is unknown.
func refusalOf(ctx context.Context, address string, settings *tls.Config, err error) string {
	if failure, ok := zkutil.AsType[*net.OpError](err); ok && failure.Op == "dial" {
		return ""
	}
	if errors.Is(err, dial.ErrNoCertificate) {
		return fmt.Sprintf("%v: give --tls-cert and --tls-key", err)
	}
	open := func(ctx context.Context) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp", address) }
	switch dial.FindCause(ctx, open, settings != nil) {
	case dial.OnlyServerHasTLS:
		return "speaks TLS on this port, but zkr does not: give --tls-ca, or a port without TLS"
	case dial.OnlyClientHasTLS:
		return "does not speak TLS on this port, but zkr does: give its secureClientPort, or leave out --tls-ca, --tls-cert and --tls-key"
	case dial.ClosedUnasked:
		return "closes each connection from this host at once: more are open than its maxClientCnxns allows, or a proxy has no server behind it"
	case dial.UnknownCause:
	}
	if err != nil && settings != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err.Error()
	}
	return ""
}

// patientTimeout is the session timeout with which doctor asks for a session. A client waits for a sixth of it, which is longer than
// AskTime: doctor measures how slow the servers are also if clients with a shorter timeout give up.
const patientTimeout = time.Minute

// greet asks a server that can be reached for a session.
func (s *server) greet(ctx context.Context, connect Connect) {
	if s.dialErr != nil || s.refusal != "" || s.isWithoutQuorum {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, AskTime)
	defer cancel()
	began := time.Now()
	client, err := connect(ctx, []string{s.address}, AskTime, patientTimeout)
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
// os.ErrDeadlineExceeded if it accepts the connection, and does neither. Errors of TLS name the server, and explain its refusal.
func FourLetterWord(ctx context.Context, address string, settings *tls.Config, word string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, AskTime)
	defer cancel()
	deadline, _ := ctx.Deadline()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer func(socket net.Conn) { _ = socket.Close() }(conn)
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if settings != nil {
		host, _, _ := net.SplitHostPort(address)
		if conn, err = dial.StartTLS(ctx, conn, dial.TLSFor(host, settings), address); err != nil {
			return "", err
		}
	}
	if _, err := io.WriteString(conn, word); err != nil {
		return "", fmt.Errorf("%s: %w", word, err)
	}
	answer, err := io.ReadAll(io.LimitReader(conn, maxAnswer))
	if len(answer) == 0 && (!dial.IsHangUp(err) || errors.Is(err, dial.ErrNoCertificate)) {
		return "", err
	}
	return string(answer), nil // a server that does not know the word breaks off
}

// maxAnswer bounds an answer: cons has a line for each connection.
const maxAnswer = 16 << 20

// parseFields returns the fields of lines "name<separator>value", each value as text that can be shown.
func parseFields(answer, separator string) map[string]string {
	fields := map[string]string{}
	for lines := bufio.NewScanner(bytes.NewReader([]byte(answer))); lines.Scan(); {
		if name, value, ok := strings.Cut(lines.Text(), separator); ok {
			fields[name] = zkutil.Printable(strings.TrimSpace(value))
		}
	}
	return fields
}

// isOlder reports whether a version is older than major.minor. It reports false for an unreadable version.
func isOlder(version string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(version, "%d.%d", &a, &b); n < 2 {
		return false
	}
	return a < major || a == major && b < minor
}
