package proto

// ForbiddenInPath are the characters that the server's PathUtils refuses. PathUtils reads
// UTF-16, and therefore also refuses every character that needs surrogates.
func ForbiddenInPath(r rune) bool {
	return r <= 0x1f || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
}
