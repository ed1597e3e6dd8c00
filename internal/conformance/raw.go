package conformance

import "encoding/hex"

// bytes sends bytes as they are. After "partial" the frame isn't whole and nothing
// more is sent; after "bytes" the server is expected to hang up.
func (r *Runner) bytes(s *session, step Step) error {
	b, err := hex.DecodeString(step.get("hex"))
	if err != nil {
		return err
	}
	s.line.write(b)
	if step.Op == "partial" {
		s.mute = true
		return nil
	}
	r.ends(s)
	return nil
}
