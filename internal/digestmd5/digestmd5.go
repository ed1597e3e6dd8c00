package digestmd5

import (
	"crypto/md5" //nolint:gosec // the mechanism uses MD5
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

const (
	// uri is the digest-uri of every ZooKeeper server.
	uri = "zookeeper/zk-sasl-md5"
	// firstUse is the nonce count: each login is a new one.
	firstUse = "00000001"
	// qopAuth is the quality of protection "authentication alone".
	qopAuth = "auth"
)

// proof is the input of the digests that both sides compute.
type proof struct {
	user, realm, password string
	nonce, cnonce         string
	uri                   string
}

// digest computes the response of the client, or rspauth of the server.
func (p proof) digest(isServer bool) string {
	secret := md5.Sum(join(hashed(p.user), hashed(p.realm), hashed(p.password))) //nolint:gosec // see the import
	a1 := md5.Sum(join(secret[:], []byte(p.nonce), []byte(p.cnonce)))            //nolint:gosec // as above
	request := "AUTHENTICATE:" + p.uri
	if isServer {
		request = ":" + p.uri
	}
	a2 := md5.Sum([]byte(request)) //nolint:gosec // as above
	all := md5.Sum(join([]byte(hex.EncodeToString(a1[:])), []byte(p.nonce), []byte(firstUse), []byte(p.cnonce),
		[]byte(qopAuth), []byte(hex.EncodeToString(a2[:])))) //nolint:gosec // as above
	return hex.EncodeToString(all[:])
}

func join(parts ...[]byte) []byte {
	var all []byte
	for i, part := range parts {
		if i > 0 {
			all = append(all, ':')
		}
		all = append(all, part...)
	}
	return all
}

// hashed returns the bytes that are hashed for a text: ISO 8859-1 if the text has no other characters, else UTF-8 (RFC 2831, 2.1.2.1).
func hashed(text string) []byte {
	latin := make([]byte, 0, len(text))
	for _, r := range text {
		if r > 0xff {
			return []byte(text)
		}
		latin = append(latin, byte(r))
	}
	return latin
}

// nonce returns a text that nobody can guess.
func nonce() string {
	random := make([]byte, 24)
	_, _ = rand.Read(random) // never fails
	return base64.StdEncoding.EncodeToString(random)
}

// directives are the fields of a message. Of a repeated field the first counts.
type directives map[string]string

var errSyntax = errors.New("malformed DIGEST-MD5 message")

// parse reads a message: a list of name=value, separated by commas, in which a value may be quoted.
func parse(message []byte) (directives, error) {
	d := directives{}
	rest := strings.Trim(string(message), ", \t\r\n")
	for rest != "" {
		name, after, ok := strings.Cut(rest, "=")
		if name = strings.ToLower(strings.TrimSpace(name)); !ok || name == "" {
			return nil, errSyntax
		}
		value, after, err := parseValue(strings.TrimLeft(after, " \t\r\n"))
		if err != nil {
			return nil, err
		}
		after = strings.TrimLeft(after, " \t\r\n")
		if after != "" && after[0] != ',' {
			return nil, errSyntax
		}
		if _, isKnown := d[name]; !isKnown {
			d[name] = value
		}
		rest = strings.TrimLeft(after, ", \t\r\n")
	}
	return d, nil
}

// parseValue reads a value at the beginning of text.
func parseValue(text string) (value, rest string, err error) {
	if !strings.HasPrefix(text, `"`) {
		end := strings.IndexByte(text, ',')
		if end < 0 {
			end = len(text)
		}
		return strings.TrimSpace(text[:end]), text[end:], nil
	}
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			return b.String(), text[i+1:], nil
		case '\\':
			if i++; i == len(text) {
				return "", "", errSyntax
			}
		}
		b.WriteByte(text[i])
	}
	return "", "", errSyntax
}

// quote returns a value in quotes.
func quote(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
}

// Client is the client's side of one login. The messages alternate: the server's challenge, the client's response, the
// server's answer.
type Client struct{ proof }

// NewClient returns the client's side of a login. The user and the password are UTF-8.
func NewClient(user, password string) *Client {
	return &Client{proof{user: user, password: password, cnonce: nonce(), uri: uri}}
}

// Respond returns the response to the server's challenge.
func (c *Client) Respond(challenge []byte) (response []byte, err error) {
	d, err := parse(challenge)
	switch {
	case err != nil:
		return nil, err
	case d["nonce"] == "":
		return nil, fmt.Errorf("%w: a challenge without a nonce", errSyntax)
	case d["algorithm"] != "md5-sess":
		return nil, fmt.Errorf("the server asks for the algorithm %q, and DIGEST-MD5 is md5-sess", d["algorithm"])
	case d["qop"] != "" && !containsWord(d["qop"], qopAuth):
		return nil, fmt.Errorf("the server asks for the protection %q, and ZooKeeper's clients have none but %s", d["qop"], qopAuth)
	}
	c.nonce, c.realm = d["nonce"], d["realm"]
	if d["charset"] == "utf-8" {
		return c.response("charset=utf-8,", c.user), nil
	}
	latin := string(hashed(c.user))
	if latin == c.user && !isASCII(c.user) {
		return nil, errors.New("the server does not accept UTF-8, and the user has characters outside ISO 8859-1")
	}
	return c.response("", latin), nil
}

// response writes the client's message.
func (c *Client) response(charset, user string) []byte {
	return []byte(charset + "username=" + quote(user) + ",realm=" + quote(c.realm) + ",nonce=" + quote(c.nonce) +
		",nc=" + firstUse + ",cnonce=" + quote(c.cnonce) + ",digest-uri=" + quote(uri) +
		",response=" + c.digest(false) + ",qop=" + qopAuth)
}

// ErrImpostor means that the server does not know the password.
var ErrImpostor = errors.New("the server does not prove that it knows the password")

// Verify checks the server's answer to the response, which proves that the server knows the password, too.
func (c *Client) Verify(answer []byte) error {
	d, err := parse(answer)
	if err != nil {
		return err
	}
	if subtle.ConstantTimeCompare([]byte(d["rspauth"]), []byte(c.digest(true))) != 1 {
		return ErrImpostor
	}
	return nil
}

func containsWord(list, word string) bool {
	for each := range strings.SplitSeq(list, ",") {
		if strings.TrimSpace(each) == word {
			return true
		}
	}
	return false
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// Server is the server's side of one login, as the JDK's.
type Server struct{ nonce string }

// NewServer returns the server's side of a login.
func NewServer() *Server { return &Server{nonce: nonce()} }

// Challenge returns the first message.
func (s *Server) Challenge() []byte {
	return []byte(`realm="zk-sasl-md5",nonce=` + quote(s.nonce) + `,charset=utf-8,algorithm=md5-sess`)
}

// ErrRefused means that the client does not know the password of the user.
var ErrRefused = errors.New("wrong user or password")

// Check returns the user that a response proves, and the answer. passwordOf returns the password of a user.
func (s *Server) Check(response []byte, passwordOf func(user string) (password string, ok bool)) (user string, answer []byte, err error) {
	d, err := parse(response)
	if err != nil {
		return "", nil, err
	}
	user = d["username"]
	if d["charset"] != "utf-8" {
		user = fromLatin(user)
	}
	password, ok := passwordOf(user)
	p := proof{user: user, realm: d["realm"], password: password, nonce: s.nonce, cnonce: d["cnonce"], uri: uri}
	switch {
	case !ok, d["nonce"] != s.nonce, d["nc"] != firstUse, d["digest-uri"] != uri, d["qop"] != "" && d["qop"] != qopAuth,
		subtle.ConstantTimeCompare([]byte(d["response"]), []byte(p.digest(false))) != 1:
		return "", nil, ErrRefused
	}
	return user, []byte("rspauth=" + p.digest(true)), nil
}

// fromLatin decodes ISO 8859-1.
func fromLatin(text string) string {
	var b strings.Builder
	for i := range len(text) {
		b.WriteRune(rune(text[i]))
	}
	return b.String()
}
