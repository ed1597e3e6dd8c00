package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/await"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/doctor"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/exit"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/guard"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
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

	login

	timeoutErr error // of the environment
}

func (g *globals) define(flags *pflag.FlagSet) {
	timeout := 30 * time.Second
	if text := os.Getenv("ZKR_SESSION_TIMEOUT"); text != "" {
		if timeout, g.timeoutErr = parseDuration(text); g.timeoutErr != nil {
			g.timeoutErr = exit.Errorf(exit.Usage, "ZKR_SESSION_TIMEOUT: %w", g.timeoutErr)
		}
	}
	flags.StringVar(&g.servers, "servers", environment("ZKR_SERVERS", "127.0.0.1:2181"), "servers, host:port with commas between (ZKR_SERVERS)")
	flags.StringVar(&g.namespace, "namespace", os.Getenv("ZKR_NAMESPACE"), "path in front of all paths (ZKR_NAMESPACE)")
	durationVar(flags, &g.sessionTimeout, "session-timeout", "", timeout, "session timeout to ask for (ZKR_SESSION_TIMEOUT)")
	flags.StringVar(&g.authFile, "auth-file", os.Getenv("ZKR_AUTH_FILE"), "file with lines scheme:credential (ZKR_AUTH_FILE)")
	g.login.define(flags)
	flags.StringVar(&g.tlsCA, "tls-ca", os.Getenv("ZKR_TLS_CA"), "file with the certificates that servers are checked by (ZKR_TLS_CA)")
	flags.StringVar(&g.tlsCert, "tls-cert", os.Getenv("ZKR_TLS_CERT"), "file with our certificate (ZKR_TLS_CERT)")
	flags.StringVar(&g.tlsKey, "tls-key", os.Getenv("ZKR_TLS_KEY"), "file with our key (ZKR_TLS_KEY)")
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
	logger := slog.New(slog.NewTextHandler(&stderr, &slog.HandlerOptions{Level: level}))
	options := []recipes.Option{recipes.WithSessionTimeout(g.sessionTimeout), recipes.WithLogger(logger)}
	if namespace := strings.Trim(g.namespace, "/"); namespace != "" {
		options = append(options, recipes.WithNamespace(namespace))
	}
	auth, err := readAuth(g.authFile)
	if err != nil {
		return nil, err
	}
	options = append(options, auth...)
	login, err := g.login.options()
	if err != nil {
		return nil, err
	}
	options = append(options, login...)
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
	content, err := readSecret(path)
	if err != nil {
		return nil, exit.Errorf(exit.Usage, "--auth-file: %w", err)
	}
	n := 0
	for line := range bytes.Lines(content) { // a bufio.Scanner would end at a long line
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		scheme, credential, ok := bytes.Cut(line, []byte(":"))
		if !ok || len(scheme) == 0 { // the line is not shown: it may be a password
			return nil, exit.Errorf(exit.Usage, "--auth-file: line %d is not scheme:credential", n)
		}
		options = append(options, recipes.WithAuth(string(scheme), credential))
	}
	return options, nil
}

// readText returns the content of a file in UTF-8 without the byte order mark that some editors write.
func readText(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(content, []byte{0xFF, 0xFE}) || bytes.HasPrefix(content, []byte{0xFE, 0xFF}) {
		return nil, fmt.Errorf("%s is in UTF-16: save it in UTF-8", path)
	}
	return bytes.TrimPrefix(content, []byte("\uFEFF")), nil
}

// connect connects within limit, where 0 is the default of package recipes. On failure, the error has a diagnosis of
// every server. A chroot that does not exist is a usage error.
func (g *globals) connect(ctx context.Context, limit time.Duration) (*recipes.Client, error) {
	servers, chroot := g.serverList()
	client, err := g.connectTo(ctx, servers, limit)
	if err == nil && chroot != "" {
		if err = checkChroot(ctx, client, chroot); err != nil {
			closeClient(client)
			return nil, err
		}
	}
	if _, isSignal := zkutil.AsType[guard.SignalError](context.Cause(ctx)); err == nil || isSignal || exit.CodeOf(err) == exit.Usage {
		return client, err
	}
	settings, settingsErr := g.tlsSettings()
	if settingsErr != nil {
		return nil, settingsErr
	}
	var text strings.Builder
	text.WriteString(err.Error())
	for _, f := range doctor.Probe(context.WithoutCancel(ctx), servers, settings) { // ctx may be over
		_, _ = fmt.Fprintf(&text, "\n  %s: %s", f.What, f.Text)
	}
	return nil, exit.Errorf(exit.Unavailable, "%s", &text)
}

// checkChroot returns an error if the chroot does not exist. A failure to ask is left to the command's own requests.
func checkChroot(ctx context.Context, client *recipes.Client, chroot string) error {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	if isThere, err := exists(ctx, client, chroot); err == nil && !isThere {
		return exit.Errorf(exit.Usage, "--servers: the chroot %s does not exist: create it, or use --namespace, which is created on demand", chroot)
	}
	return nil
}

// exists reports whether a path on the server exists.
func exists(ctx context.Context, client *recipes.Client, path string) (bool, error) {
	return await.Call(ctx, func() (bool, error) {
		isThere, _, err := client.Conn().Exists(path)
		return isThere, err
	})
}

// connectTo connects to some of the servers. The options of more are stronger than the flags.
func (g *globals) connectTo(ctx context.Context, servers []string, limit time.Duration, more ...recipes.Option) (*recipes.Client, error) {
	options, err := g.options()
	if err != nil {
		return nil, err
	}
	if limit > 0 {
		options = append(options, recipes.WithConnectTimeout(limit))
	}
	options = append(options, more...)
	_, chroot := g.serverList()
	client, err := recipes.Connect(ctx, []string{strings.Join(servers, ",") + chroot}, options...)
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
	_, prefix := g.serverList()
	if trimmed := strings.Trim(g.namespace, "/"); trimmed != "" {
		prefix += "/" + trimmed
	}
	return prefix
}

// serverList returns the servers, and the chroot behind the last of them, "" if there is none. Spaces around a server and behind the chroot
// are ignored, as the client ignores them. A path behind another server stays, for the client to refuse.
func (g *globals) serverList() (servers []string, chroot string) {
	list := strings.TrimSpace(g.servers)
	if at := strings.IndexByte(list, '/'); at >= 0 && !strings.ContainsAny(list[at:], ",@") && !strings.HasPrefix(list[at:], "//") {
		list, chroot = list[:at], strings.TrimRight(list[at:], "/")
	}
	servers = strings.Split(list, ",")
	for i, server := range servers {
		servers[i] = strings.TrimSpace(server)
	}
	return servers, chroot
}

// shown returns a path on the server as the user writes it.
func (g *globals) shown(path string) string {
	below, ok := strings.CutPrefix(path, g.prefix())
	switch {
	case ok && below == "":
		return "/"
	case !ok || below[0] != '/': // /team-2 is not below /team
		return path
	default:
		return below
	}
}

// serversAlone returns the servers without the chroot.
func (g *globals) serversAlone() []string {
	servers, _ := g.serverList()
	return servers
}
