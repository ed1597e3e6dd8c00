package zkutil

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// ErrInvalidPath is matched by every error of [ValidatePath].
var ErrInvalidPath = errors.New("invalid path")

// maxPath keeps requests well below the server's limit for a frame (1 MB). A server closes the connection after
// a longer frame.
const maxPath = 16 << 10

// ValidatePath checks a path by the server's rules, and refuses the server's own
// tree: absolute, no trailing slash, no empty, "." or ".." segment, no control or
// non-character, not /zookeeper or below.
func ValidatePath(path string) error {
	wrong := func(what string) error { return fmt.Errorf("%w %q: %s", ErrInvalidPath, path, what) }
	switch {
	case path == "":
		return wrong("empty")
	case path[0] != '/':
		return wrong("not absolute")
	case path == "/":
		return nil
	case len(path) > maxPath:
		return fmt.Errorf("%w of %d bytes: longer than %d", ErrInvalidPath, len(path), maxPath)
	case strings.HasSuffix(path, "/"):
		return wrong("trailing slash")
	case !utf8.ValidString(path):
		return wrong("not UTF-8")
	}
	segments := strings.Split(path[1:], "/")
	for _, segment := range segments {
		switch segment {
		case "":
			return wrong("empty segment")
		case ".", "..":
			return wrong("relative segment")
		}
	}
	if i := strings.IndexFunc(path, proto.ForbiddenInPath); i >= 0 {
		return wrong(fmt.Sprintf("forbidden character at byte %d", i))
	}
	if segments[0] == "zookeeper" {
		return wrong("reserved for the server")
	}
	return nil
}

// Join returns the path of child name below dir.
func Join(dir, name string) string {
	return strings.TrimSuffix(dir, "/") + "/" + strings.TrimPrefix(name, "/")
}

// Split returns the directory and the last segment of an absolute path.
func Split(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	return max(path[:i], "/"), path[i+1:]
}

// NumberDigits is the number of digits that a server appends to the name of a sequential znode, if the sequence
// number is not negative.
const NumberDigits = 10

// NumberOf returns the number in the last ten digits of a name or a path. ok is false without ten digits at the
// end.
func NumberOf(name string) (number int64, ok bool) {
	if len(name) < NumberDigits {
		return 0, false
	}
	for _, digit := range []byte(name[len(name)-NumberDigits:]) {
		if digit < '0' || digit > '9' {
			return 0, false
		}
		number = 10*number + int64(digit-'0')
	}
	return number, true
}

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

// ProtectionOf returns the text before the prefix in the name of a protected znode, which is the protection, the uuid
// and a dash. It returns "" for any other name.
func ProtectionOf(name string) string {
	const length = len(Protection) + 36 + 1
	if len(name) < length || !strings.HasPrefix(name, Protection) {
		return ""
	}
	return name[:length]
}
