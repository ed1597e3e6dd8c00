package wire

import (
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// zk.Conn presents its credentials again on each connection, one by one, before it sends anything else.
// The engine's own requests wait for that, because the server would refuse them. zk.Conn does not tell
// which credentials it has, so the wire keeps those that were accepted, because zk.Conn keeps each.
//
// zk.Conn may present fewer: AddAuth puts a credential into zk.Conn's list a moment after the answer, when
// the next connection may already be up. Therefore the first frame that presents no credential ends the
// wait as well. That is zk.Conn's ping at the latest.

// credential is the content of a request that presents one.
type credential string

// credentialOf returns the credential in a request, which is what follows the length, xid and operation.
func credentialOf(frame []byte) credential { return credential(frame[min(len(frame), 12):]) }

// noteSent notes that zk.Conn has written a frame, which may be what the engine's own requests wait for.
func (l *Line) noteSent(op int32, frame []byte) {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	if l.isPresented {
		return
	}
	if i := slices.Index(l.credentialsLeft, credentialOf(frame)); op == proto.OpAuth && i >= 0 {
		l.credentialsLeft = slices.Delete(l.credentialsLeft, i, i+1)
	} else {
		l.credentialsLeft = nil
	}
	l.releaseOwnLocked()
}

// releaseOwnLocked lets the engine's own requests be written, once zk.Conn has presented its credentials
// again.
func (l *Line) releaseOwnLocked() {
	if len(l.credentialsLeft) == 0 {
		l.isPresented = true
		close(l.credentialsDone)
	}
}

// noteCredentialAnswer reports whether an answer is that to a credential. A credential that is presented for
// the first time is kept if it is accepted.
func (l *Line) noteCredentialAnswer(xid, code int32) bool {
	l.wire.mu.Lock()
	defer l.wire.mu.Unlock()
	added, isCredential := l.credentials[xid]
	delete(l.credentials, xid)
	if added != "" && code == proto.CodeOK {
		l.wire.credentials = append(l.wire.credentials, added)
	}
	return isCredential
}
