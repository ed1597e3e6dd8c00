package zkutil

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
)

// Protection is what Curator puts before the uuid of a protected node.
const Protection = "_c_"

// NewUUID returns a random (version 4) UUID in its canonical form: 36 lowercase
// characters, the only form that Curator recognises as protection.
func NewUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the program instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	text := hex.AppendEncode(make([]byte, 0, 36), b[:4])
	for _, group := range [...][]byte{b[4:6], b[6:8], b[8:10], b[10:]} {
		text = hex.AppendEncode(append(text, '-'), group)
	}
	return string(text)
}

// ProtectionOf returns what comes before the prefix in the name of a protected znode: the
// protection, the uuid and a dash; "" for any other name.
func ProtectionOf(name string) string {
	const length = len(Protection) + 36 + 1
	if len(name) < length || !strings.HasPrefix(name, Protection) {
		return ""
	}
	return name[:length]
}
