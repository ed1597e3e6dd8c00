package proto

// ForbiddenInPath are the characters that the server's PathUtils refuses. It looks at
// UTF-16, so whatever needs surrogates there is refused too.
func ForbiddenInPath(r rune) bool {
	return r <= 0x1f || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
}
