package recipes

import (
	"context"
	"errors"
	"fmt"

	"github.com/zkrecipes/zkrecipes/internal/digestmd5"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// SASLMechanism logs a client in at servers that demand a login over SASL (see [WithSASL]). [DigestMD5] returns a mechanism;
// module contrib/saslkrb5 has one for Kerberos. The methods of a mechanism may be called concurrently, and run in goroutines of
// the client. A method that does not return by the end of its context, or panics, is a failed attempt to connect.
type SASLMechanism interface {
	// Begin begins a login on a new connection to server, "host:port" as given to Connect. A failed
	// Begin is a failed attempt to connect. An error that wraps [ErrLoginRefused] says that every attempt will
	// fail in the same way.
	Begin(ctx context.Context, server string) (SASLLogin, error)
}

// SASLLogin is a login on one connection. Its methods are called one at a time.
type SASLLogin interface {
	// Respond returns the next message to the server. The first challenge is nil; so is a challenge without a token. If isDone
	// is true, the login succeeds at once if the response is nil, and otherwise when the server accepts the response. Errors
	// are as for Begin.
	Respond(ctx context.Context, challenge []byte) (response []byte, isDone bool, err error)
	// Explain returns the likely reason if the server refuses the latest response, for the error. A server gives no reason.
	Explain() string
}

// WithSASL logs in on every connection, before any other request. Connect fails with [ErrLoginRefused] if every server refuses
// the login, and at the end of its time if they only hang up, as servers do that start, and before 3.6 to refuse. If servers
// refuse a later login, because the password changed meanwhile, the client keeps trying, and the log has a record at Error.
//
// The servers know the client as "sasl" with the name of the mechanism's user: zk.ACL{Scheme: "sasl", ID: "ann"}. The login
// precedes the credentials of [WithAuth]. A login shares the time limit of the handshake. WithSASL may be given once.
func WithSASL(mechanism SASLMechanism) Option {
	return func(cfg *config) error {
		if mechanism == nil {
			return errors.New("sasl: nil mechanism")
		}
		if checked, ok := mechanism.(interface{ check() error }); ok {
			if err := checked.check(); err != nil {
				return fmt.Errorf("sasl: %w", err)
			}
		}
		if cfg.SASL != nil {
			return errors.New("sasl: given twice, but a connection has one login")
		}
		cfg.SASL = func(ctx context.Context, server string) (session.Login, error) { return mechanism.Begin(ctx, server) }
		return nil
	}
}

// DigestMD5 returns the mechanism DIGEST-MD5, for servers that have the user and the password in the section Server of their JAAS
// configuration. The password does not cross the network, but a listener can guess at it offline, and MD5 is broken for
// other purposes: use TLS as well. The server proves that it knows the password, too. Servers in FIPS mode refuse
// DIGEST-MD5. WithSASL refuses an empty user or password.
func DigestMD5(user, password string) SASLMechanism {
	return &digestMD5{user, password != "", func() *digestmd5.Client { return digestmd5.NewClient(user, password) }}
}

type digestMD5 struct {
	user        string
	hasPassword bool
	newClient   func() *digestmd5.Client // which has the password, so that no verb of package fmt prints it
}

func (m *digestMD5) check() error {
	switch {
	case m == nil || m.user == "":
		return errors.New("DigestMD5: empty user")
	case !m.hasPassword:
		return errors.New("DigestMD5: empty password")
	}
	return nil
}

func (m *digestMD5) Begin(context.Context, string) (SASLLogin, error) {
	return &digestLogin{client: m.newClient()}, nil
}

// String leaves the password out.
func (m *digestMD5) String() string { return "recipes.DigestMD5(" + m.user + ")" }

// digestLogin is a login with DIGEST-MD5. It consists of an empty message, the server's challenge, the response, and the
// server's proof.
type digestLogin struct {
	client *digestmd5.Client
	step   int
}

func (l *digestLogin) Respond(_ context.Context, challenge []byte) (response []byte, isDone bool, err error) {
	l.step++
	switch {
	case l.step == 1:
		return []byte{}, false, nil
	case challenge == nil && l.step == 2:
		return nil, false, fmt.Errorf("%w: the server offers no SASL login: its JAAS configuration has no Server section, or the server forbids DIGEST-MD5 (FIPS mode)", ErrLoginRefused)
	case challenge == nil: // with allowSaslFailedClients
		return nil, false, fmt.Errorf("%w by the server: %s", ErrLoginRefused, l.Explain())
	case l.step == 2:
		response, err = l.client.Respond(challenge)
		return response, false, refused(err)
	default:
		return nil, true, refused(l.client.Verify(challenge))
	}
}

// refused makes a failure match ErrLoginRefused: another attempt would end in the same way.
func refused(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: DIGEST-MD5: %w", ErrLoginRefused, err)
}

func (l *digestLogin) Explain() string {
	if l.step == 1 {
		return "DIGEST-MD5 is not accepted: the server logs in with Kerberos alone, or forbids DIGEST-MD5 (FIPS mode)"
	}
	return "wrong user or password"
}
