package digestmd5

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func passwords(known map[string]string) func(string) (string, bool) {
	return func(user string) (string, bool) {
		password, ok := known[user]
		return password, ok
	}
}

// The example of RFC 2831, section 4.
func TestDigestOfTheRFC(t *testing.T) {
	p := proof{
		user: "chris", realm: "elwood.innosoft.com", password: "secret",
		nonce: "OA6MG9tEQGm2hh", cnonce: "OA6MHXh6VqTrRk", uri: "imap/elwood.innosoft.com",
	}
	require.Equal(t, "d388dad90d4bbd760a152321f2143af7", p.digest(false))
	require.Equal(t, "ea40f60335c427b5527b84dbabcdfffd", p.digest(true))
}

func TestLogin(t *testing.T) {
	for user, password := range map[string]string{
		"ann": "secret", `a"n\n`: `p"w\`, "änn": "sécret", "安": "密码", "ann,b=c": "x,y=z", "with space": " ",
	} {
		client, server := NewClient(user, password), NewServer()
		response, err := client.Respond(server.Challenge())
		require.NoError(t, err)
		require.NotContains(t, string(response), "secret")
		known, answer, err := server.Check(response, passwords(map[string]string{user: password}))
		require.NoError(t, err, user)
		require.Equal(t, user, known)
		require.NoError(t, client.Verify(answer))
		require.ErrorIs(t, client.Verify([]byte("rspauth="+strings.Repeat("0", 32))), ErrImpostor)

		_, _, err = server.Check(response, passwords(map[string]string{user: password + "x"}))
		require.ErrorIs(t, err, ErrRefused)
		_, _, err = server.Check(response, passwords(nil))
		require.ErrorIs(t, err, ErrRefused)
		_, _, err = NewServer().Check(response, passwords(map[string]string{user: password}))
		require.ErrorIs(t, err, ErrRefused, "another login's")
	}
}

// A server without UTF-8 gets the user in ISO 8859-1.
func TestLoginWithoutUTF8(t *testing.T) {
	client, server := NewClient("änn", "sécret"), NewServer()
	challenge := strings.Replace(string(server.Challenge()), "charset=utf-8,", "", 1)
	response, err := client.Respond([]byte(challenge))
	require.NoError(t, err)
	require.Contains(t, string(response), "username=\"\xe4nn\"")
	user, _, err := server.Check(response, passwords(map[string]string{"änn": "sécret"}))
	require.NoError(t, err)
	require.Equal(t, "änn", user)
	_, err = NewClient("安", "x").Respond([]byte(challenge))
	require.ErrorContains(t, err, "does not accept UTF-8")
}

func TestClientRefusesBadChallenges(t *testing.T) {
	for challenge, want := range map[string]string{
		``:                        "without a nonce",
		`nonce`:                   "malformed",
		`nonce="x`:                "malformed",
		`nonce="x\`:               "malformed",
		`nonce="x"y`:              "malformed",
		`="x"`:                    "malformed",
		`nonce="x"`:               `the algorithm ""`,
		`nonce="x",algorithm=md5`: `the algorithm "md5"`,
		`nonce="x",algorithm=md5-sess,qop="auth-int,auth-conf"`: `the protection "auth-int,auth-conf"`,
	} {
		_, err := NewClient("ann", "secret").Respond([]byte(challenge))
		require.ErrorContains(t, err, want, challenge)
	}
	response, err := NewClient("ann", "secret").Respond([]byte(` Nonce = "x" , algorithm=md5-sess ,, qop="auth-int, auth",realm="a",realm="b"`))
	require.NoError(t, err)
	require.Contains(t, string(response), `realm="a",nonce="x"`)
	require.Error(t, NewClient("ann", "secret").Verify([]byte(`rspauth="`)))
}

// What was quoted is read again as it was.
func FuzzQuote(f *testing.F) {
	f.Add("a", `b"\`)
	f.Fuzz(func(t *testing.T, first, second string) {
		d, err := parse([]byte("a=" + quote(first) + ",b=" + quote(second)))
		require.NoError(t, err)
		require.Equal(t, directives{"a": first, "b": second}, d)
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(`realm="zk",nonce="x",charset=utf-8`))
	f.Fuzz(func(t *testing.T, message []byte) {
		_, err := parse(message)
		if err != nil {
			require.ErrorIs(t, err, errSyntax)
		}
	})
}
