package cli

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// globals are the flags of all commands.
type globals struct {
	servers        string
	namespace      string
	sessionTimeout time.Duration
	authFile       string
	tlsCA          string
	tlsCert        string
	tlsKey         string
	isVerbose      bool

	timeoutErr error // of the environment
}

func (g *globals) define(flags *pflag.FlagSet) {
	timeout := 30 * time.Second
	if text := os.Getenv("ZKR_SESSION_TIMEOUT"); text != "" {
		if timeout, g.timeoutErr = time.ParseDuration(text); g.timeoutErr != nil {
			g.timeoutErr = exit.Errorf(exit.Usage, "ZKR_SESSION_TIMEOUT: %w", g.timeoutErr)
		}
	}
	flags.StringVar(&g.servers, "servers", environment("ZKR_SERVERS", "127.0.0.1:2181"), "servers, host:port with commas between (ZKR_SERVERS)")
	flags.StringVar(&g.namespace, "namespace", os.Getenv("ZKR_NAMESPACE"), "path in front of all paths (ZKR_NAMESPACE)")
	flags.DurationVar(&g.sessionTimeout, "session-timeout", timeout, "session timeout to ask for (ZKR_SESSION_TIMEOUT)")
	flags.StringVar(&g.authFile, "auth-file", os.Getenv("ZKR_AUTH_FILE"), "file with lines scheme:credential (ZKR_AUTH_FILE)")
	flags.StringVar(&g.tlsCA, "tls-ca", "", "file with the certificates that servers are checked by")
	flags.StringVar(&g.tlsCert, "tls-cert", "", "file with our certificate")
	flags.StringVar(&g.tlsKey, "tls-key", "", "file with our key")
	flags.BoolVarP(&g.isVerbose, "verbose", "v", false, "log what the client does, to stderr")
}

func environment(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// options returns the options of the client. Its errors are of usage.
func (g *globals) options() ([]recipes.Option, error) {
	level := slog.LevelError
	if g.isVerbose {
		level = slog.LevelDebug
	}
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level}))
	options := []recipes.Option{recipes.WithSessionTimeout(g.sessionTimeout), recipes.WithLogger(logger)}
	if g.namespace != "" && g.namespace != "/" {
		options = append(options, recipes.WithNamespace(strings.Trim(g.namespace, "/")))
	}
	auth, err := readAuth(g.authFile)
	if err != nil {
		return nil, err
	}
	options = append(options, auth...)
	settings, err := g.tlsSettings()
	if err != nil {
		return nil, err
	}
	if settings != nil {
		options = append(options, recipes.WithTLS(settings))
	}
	return options, g.timeoutErr
}

// readAuth returns an option for each line of a file. Empty lines and those with # in front are left out.
func readAuth(path string) (options []recipes.Option, err error) {
	if path == "" {
		return nil, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "--auth-file: %w", err)
	}
	lines := bufio.NewScanner(bytes.NewReader(content))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		scheme, credential, ok := strings.Cut(line, ":")
		if !ok || scheme == "" { // the line is not shown: it may be a password
			return nil, exit.Errorf(exit.Usage, "--auth-file: line %d is not scheme:credential", n)
		}
		options = append(options, recipes.WithAuth(scheme, []byte(credential)))
	}
	return options, nil
}

// tlsSettings returns nil if no flag asks for TLS.
func (g *globals) tlsSettings() (*tls.Config, error) {
	if g.tlsCA == "" && g.tlsCert == "" && g.tlsKey == "" {
		return nil, nil //nolint:nilnil // documented
	}
	settings := &tls.Config{MinVersion: tls.VersionTLS12}
	if g.tlsCA != "" {
		content, err := os.ReadFile(g.tlsCA)
		if err != nil {
			return nil, exit.Errorf(exit.Usage, "--tls-ca: %w", err)
		}
		settings.RootCAs = x509.NewCertPool()
		if !settings.RootCAs.AppendCertsFromPEM(content) {
			return nil, exit.Errorf(exit.Usage, "--tls-ca: no certificate in %s", g.tlsCA)
		}
	}
	if g.tlsCert == "" && g.tlsKey == "" {
		return settings, nil
	}
	if g.tlsCert == "" || g.tlsKey == "" {
		return nil, exit.Errorf(exit.Usage, "--tls-cert and --tls-key need each other")
	}
	pair, err := tls.LoadX509KeyPair(g.tlsCert, g.tlsKey)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "--tls-cert: %w", err)
	}
	settings.Certificates = []tls.Certificate{pair}
	return settings, nil
}

// connect connects within limit, 0 for the default of package recipes.
func (g *globals) connect(ctx context.Context, limit time.Duration) (*recipes.Client, error) {
	options, err := g.options()
	if err != nil {
		return nil, err
	}
	if limit > 0 {
		options = append(options, recipes.WithConnectTimeout(limit))
	}
	client, err := recipes.Connect(ctx, strings.Split(g.servers, ","), options...)
	switch {
	case err == nil:
		return client, nil
	case errors.Is(err, recipes.ErrInvalidArgument):
		return nil, &exit.Error{Code: exit.Usage, Err: err}
	default:
		return nil, &exit.Error{Code: exit.Unavailable, Err: err}
	}
}

// maxClose bounds the end of a client whose servers do not answer: its session ends by itself.
const maxClose = 2 * time.Second

// closeClient closes a client, and waits no longer than maxClose.
func closeClient(client *recipes.Client) {
	closed := make(chan struct{})
	go func() { // ends with Close, or with the process
		defer close(closed)
		_ = client.Close() // the session ends by itself
	}()
	select {
	case <-closed:
	case <-time.After(maxClose):
	}
}

// prefix is what stands before the user's paths on the server.
func (g *globals) prefix() string {
	if trimmed := strings.Trim(g.namespace, "/"); trimmed != "" {
		return "/" + trimmed
	}
	return ""
}

// shown returns a path on the server as the user writes it.
func (g *globals) shown(path string) string {
	below, ok := strings.CutPrefix(path, g.prefix())
	switch {
	case !ok:
		return path
	case below == "":
		return "/"
	default:
		return below
	}
}
