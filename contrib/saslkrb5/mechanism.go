package saslkrb5

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jcmturner/gokrb5/v8/client"
	"github.com/jcmturner/gokrb5/v8/config"
	"github.com/jcmturner/gokrb5/v8/credentials"
	"github.com/jcmturner/gokrb5/v8/keytab"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/types"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// Config says who logs in. Exactly one of Password, KeytabFile and CacheFile is set.
type Config struct {
	Principal  string // "ann@EXAMPLE.COM"; empty with CacheFile, which has it
	Password   string
	KeytabFile string
	CacheFile  string // the credential cache of kinit, as a file

	// ConfigFile is Kerberos' configuration; the default is $KRB5_CONFIG, or /etc/krb5.conf.
	ConfigFile string
	// Service is the name of the servers' principals before the slash; the default is "zookeeper". The host behind the slash is
	// the server's as given to Connect. If Service has a slash, it is the principal of all servers.
	Service string
}

// Mechanism is Kerberos for recipes.WithSASL. Its methods may be called concurrently.
type Mechanism struct {
	cfg  Config
	krb5 *config.Config
	user string
	real string // the realm

	ask func(principal string) (*ticket, error) // for a ticket: request, but in tests

	mu       sync.Mutex // protects services and their fields
	services map[string]*service
}

// service is what is known of the principal of a server.
type service struct {
	ticket *ticket // the latest; nil: none yet

	asking   chan struct{} // closed at the end of the current exchange with the KDC; nil: no exchange
	failure  error         // of the latest exchange
	failedAt time.Time     // when that was
}

// failurePause is how long a failed exchange with the KDC is remembered, so that a client that reconnects does not ask all the time.
const failurePause = 5 * time.Second

var _ recipes.SASLMechanism = (*Mechanism)(nil)

// New checks a configuration, and returns the mechanism. The KDC is not asked yet.
func New(cfg Config) (*Mechanism, error) {
	failed := func(err error) (*Mechanism, error) {
		return nil, fmt.Errorf("saslkrb5: %w: %w", recipes.ErrInvalidArgument, err)
	}
	given := 0
	for _, secret := range []string{cfg.Password, cfg.KeytabFile, cfg.CacheFile} {
		if secret != "" {
			given++
		}
	}
	if given != 1 {
		return failed(errors.New("give one of Password, KeytabFile and CacheFile"))
	}
	if cfg.Service == "" {
		cfg.Service = "zookeeper"
	}
	if cfg.ConfigFile == "" {
		cfg.ConfigFile = os.Getenv("KRB5_CONFIG")
	}
	if cfg.ConfigFile == "" {
		cfg.ConfigFile = "/etc/krb5.conf"
	}
	krb5, err := config.Load(cfg.ConfigFile)
	if err != nil {
		return failed(fmt.Errorf("configuration %s: %w", cfg.ConfigFile, err))
	}
	m := &Mechanism{cfg: cfg, krb5: krb5, services: map[string]*service{}}
	m.ask = m.request
	switch user, realm, hasRealm := strings.Cut(cfg.Principal, "@"); {
	case cfg.CacheFile != "" && cfg.Principal != "":
		return failed(errors.New("the credential cache has the principal: leave Principal empty"))
	case cfg.CacheFile != "":
	case user == "" || hasRealm && realm == "":
		return failed(fmt.Errorf("principal %q: give user@REALM", cfg.Principal))
	default:
		if !hasRealm {
			realm = krb5.LibDefaults.DefaultRealm
		}
		m.user, m.real = user, realm
	}
	if err := m.checkFiles(); err != nil {
		return failed(err)
	}
	return m, nil
}

// checkFiles reads the files once, so that a wrong path fails at the call.
func (m *Mechanism) checkFiles() (err error) {
	if m.cfg.KeytabFile != "" {
		_, err = keytab.Load(m.cfg.KeytabFile)
	}
	if m.cfg.CacheFile != "" {
		_, err = credentials.LoadCCache(m.cfg.CacheFile)
	}
	return err
}

// String leaves the password out.
func (m *Mechanism) String() string { return "saslkrb5.Mechanism(" + m.cfg.Principal + ")" }

// Format writes String for every verb, so that no verb prints the password.
func (m *Mechanism) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(m.String())) }

// ticket is a service ticket with the data needed for its use.
type ticket struct {
	client       *client.Client
	ticket       messages.Ticket
	key          types.EncryptionKey
	begin, until time.Time
}

// Begin gets a ticket for server, and begins the login.
func (m *Mechanism) Begin(ctx context.Context, server string) (recipes.SASLLogin, error) {
	t, err := m.ticketFor(ctx, m.principalOf(server))
	if err != nil {
		return nil, err
	}
	return newLogin(t)
}

// principalOf returns the principal of a server, "zookeeper/host".
func (m *Mechanism) principalOf(server string) string {
	if strings.Contains(m.cfg.Service, "/") {
		return m.cfg.Service
	}
	host, _, err := net.SplitHostPort(server)
	if err != nil {
		host = server
	}
	return m.cfg.Service + "/" + strings.ToLower(host)
}

// ticketFor returns a ticket for a principal, without waiting for the KDC while the latest ticket is valid. In the second half
// of a ticket's lifetime, it requests a new one in the background. Without a valid ticket, it waits until the KDC answers or
// ctx ends.
func (m *Mechanism) ticketFor(ctx context.Context, principal string) (*ticket, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.services[principal]
	if s == nil {
		s = &service{}
		m.services[principal] = s
	}
	now := time.Now()
	if !s.ticket.isYoung(now) && s.asking == nil && (s.failure == nil || now.Sub(s.failedAt) >= failurePause) {
		m.askLocked(principal, s)
	}
	if s.ticket.isValid(now) {
		return s.ticket, nil
	}
	if asking := s.asking; asking != nil {
		m.mu.Unlock()
		select {
		case <-asking:
		case <-ctx.Done():
		}
		m.mu.Lock()
	}
	switch {
	case s.ticket.isValid(time.Now()):
		return s.ticket, nil
	case s.asking != nil:
		return nil, fmt.Errorf("kerberos: %w within the time for the login", ErrKDCUnreachable)
	case s.failure == nil:
		return nil, fmt.Errorf("kerberos: %w: a new ticket is already expired", ErrClockSkew)
	default:
		return nil, s.failure
	}
}

// askLocked begins an exchange with the KDC. It knows no context, and ends when gokrb5 gives up; no client waits for its end.
func (m *Mechanism) askLocked(principal string, s *service) {
	asking := make(chan struct{})
	s.asking = asking
	go func() { // ends with the exchange
		next, err := m.ask(principal)
		m.mu.Lock()
		defer m.mu.Unlock()
		defer close(asking)
		s.asking, s.failure, s.failedAt = nil, named(err), time.Now()
		if err == nil {
			s.ticket = next
		}
	}()
}

// isValid reports whether the ticket, which may be nil, is not expired.
func (t *ticket) isValid(now time.Time) bool { return t != nil && now.Before(t.until) }

// isYoung reports whether less than half of the ticket's life is over.
func (t *ticket) isYoung(now time.Time) bool {
	return t.isValid(now) && now.Before(t.begin.Add(t.until.Sub(t.begin)/2))
}

// request asks the KDC for a ticket.
func (m *Mechanism) request(principal string) (*ticket, error) {
	cl, tgt, key, realm, err := m.grantingTicket()
	if err != nil {
		return nil, err
	}
	name := types.NewPrincipalName(2, principal) // of a service on a host
	_, reply, err := cl.TGSREQGenerateAndExchange(name, realm, tgt, key, false)
	if err != nil {
		return nil, err
	}
	part := reply.DecryptedEncPart
	begin := part.StartTime
	if begin.IsZero() {
		begin = part.AuthTime
	}
	return &ticket{cl, reply.Ticket, part.Key, begin, part.EndTime}, nil
}

// grantingTicket returns the ticket with which others are asked for.
func (m *Mechanism) grantingTicket() (cl *client.Client, tgt messages.Ticket, key types.EncryptionKey, realm string, err error) {
	if m.cfg.CacheFile != "" {
		return m.cachedTicket()
	}
	options := client.DisablePAFXFAST(true)
	if m.cfg.KeytabFile != "" {
		keys, err := keytab.Load(m.cfg.KeytabFile)
		if err != nil {
			return nil, tgt, key, "", err
		}
		cl = client.NewWithKeytab(m.user, m.real, keys, m.krb5, options)
	} else {
		cl = client.NewWithPassword(m.user, m.real, m.cfg.Password, m.krb5, options)
	}
	request, err := messages.NewASReqForTGT(m.real, m.krb5, cl.Credentials.CName())
	if err != nil {
		return nil, tgt, key, "", err
	}
	reply, err := cl.ASExchange(m.real, request, 0)
	if err != nil {
		return nil, tgt, key, "", err
	}
	return cl, reply.Ticket, reply.DecryptedEncPart.Key, m.real, nil
}

// cachedTicket returns the ticket of kinit.
func (m *Mechanism) cachedTicket() (cl *client.Client, tgt messages.Ticket, key types.EncryptionKey, realm string, err error) {
	cache, err := credentials.LoadCCache(m.cfg.CacheFile)
	if err != nil {
		return nil, tgt, key, "", err
	}
	realm = cache.GetClientRealm()
	entry, ok := cache.GetEntry(types.PrincipalName{NameType: 2, NameString: []string{"krbtgt", realm}})
	switch {
	case !ok:
		return nil, tgt, key, "", fmt.Errorf("%w: %s has no ticket of %s", recipes.ErrLoginRefused, m.cfg.CacheFile, realm)
	case time.Now().After(entry.EndTime):
		return nil, tgt, key, "", fmt.Errorf("%w at %s: run kinit again", ErrTicketExpired, entry.EndTime.Format(time.RFC3339))
	}
	if err := tgt.Unmarshal(entry.Ticket); err != nil {
		return nil, tgt, key, "", err
	}
	cl = client.NewWithPassword("", realm, "", m.krb5, client.DisablePAFXFAST(true))
	cl.Credentials = cache.GetClientCredentials()
	return cl, tgt, entry.Key, realm, nil
}
