package saslkrb5

import (
	"context"
	"errors"
	"fmt"

	"github.com/jcmturner/gokrb5/v8/crypto"
	"github.com/jcmturner/gokrb5/v8/gssapi"
	"github.com/jcmturner/gokrb5/v8/iana/flags"
	"github.com/jcmturner/gokrb5/v8/iana/keyusage"
	"github.com/jcmturner/gokrb5/v8/messages"
	"github.com/jcmturner/gokrb5/v8/spnego"
	"github.com/jcmturner/gokrb5/v8/types"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// login is the mechanism GSSAPI (RFC 4752) without a security layer:
//
//	client                               server
//	the ticket (AP-REQ)            →
//	                               ←     the proof that the server has read it (AP-REP)
//	an empty message               →
//	                               ←     the security layers on offer, signed
//	none of them, signed           →
type login struct {
	ticket *ticket
	step   int
	key    types.EncryptionKey // which signs
	made   types.Authenticator // proves the time
	first  []byte
}

func newLogin(t *ticket) (*login, error) {
	token, err := spnego.NewKRB5TokenAPREQ(t.client, t.ticket, t.key,
		[]int{gssapi.ContextFlagInteg, gssapi.ContextFlagMutual}, []int{flags.APOptionMutualRequired})
	if err != nil {
		return nil, named(err)
	}
	l := &login{ticket: t, key: t.key}
	if l.first, err = token.Marshal(); err != nil {
		return nil, named(err)
	}
	if err := token.APReq.DecryptAuthenticator(t.key); err != nil {
		return nil, named(err)
	}
	l.made = token.APReq.Authenticator
	return l, nil
}

var errImpostor = fmt.Errorf("%w: the server did not prove its identity", recipes.ErrLoginRefused)

// Respond returns the next message.
func (l *login) Respond(_ context.Context, challenge []byte) (response []byte, isDone bool, err error) {
	l.step++
	switch {
	case l.step == 1:
		return l.first, false, nil
	case challenge == nil:
		return nil, false, fmt.Errorf("%w: the server offers no SASL login, or refused the ticket (allowSaslFailedClients): %s", recipes.ErrLoginRefused, l.Explain())
	case l.step == 2:
		return []byte{}, false, l.verifyServer(challenge)
	default:
		response, err = l.chooseLayer(challenge)
		return response, true, err
	}
}

// verifyServer checks the AP-REP, which only the owner of the service's key can make.
func (l *login) verifyServer(challenge []byte) error {
	var token spnego.KRB5Token
	if err := token.Unmarshal(challenge); err != nil || !token.IsAPRep() {
		return errors.Join(errImpostor, err)
	}
	plain, err := crypto.DecryptEncPart(token.APRep.EncPart, l.ticket.key, keyusage.AP_REP_ENCPART)
	if err != nil {
		return errors.Join(errImpostor, err)
	}
	var part messages.EncAPRepPart
	if err := part.Unmarshal(plain); err != nil {
		return errors.Join(errImpostor, err)
	}
	if !part.CTime.Equal(l.made.CTime) || part.Cusec != l.made.Cusec {
		return errImpostor
	}
	if len(part.Subkey.KeyValue) > 0 {
		l.key = part.Subkey
	}
	return nil
}

// noLayer chooses no security layer, and messages of no length.
const noLayer = 1

// chooseLayer answers the offer of security layers, which has the set of layers and the longest message that the
// server accepts.
func (l *login) chooseLayer(challenge []byte) ([]byte, error) {
	var offer gssapi.WrapToken
	if err := offer.Unmarshal(challenge, true); err != nil {
		return nil, named(err)
	}
	if ok, err := offer.Verify(l.key, keyusage.GSSAPI_ACCEPTOR_SEAL); !ok {
		return nil, errors.Join(errImpostor, err)
	}
	if len(offer.Payload) != 4 || offer.Payload[0]&noLayer == 0 {
		return nil, fmt.Errorf("%w: the server requires encryption of all messages (QOP), which ZooKeeper's protocol does not support", recipes.ErrLoginRefused)
	}
	answer, err := gssapi.NewInitiatorWrapToken([]byte{noLayer, 0, 0, 0}, l.key)
	if err != nil {
		return nil, named(err)
	}
	return answer.Marshal()
}

// Explain returns why a server may refuse a ticket, of which it gives no reason.
func (l *login) Explain() string {
	if l.step == 1 {
		return "the server's clock differs by more than five minutes, its keytab has another key for " +
			l.ticket.ticket.SName.PrincipalNameString() + ", or it logs in with DIGEST-MD5"
	}
	return "the server does not accept the end of the login"
}
