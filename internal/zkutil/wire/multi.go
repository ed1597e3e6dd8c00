package wire

import "github.com/zkrecipes/zkrecipes/internal/proto"

// unused stands for meaningless fields in headers of parts.
const unused = -1

// appendParts writes a Multi that checks whether znodes exist, and then writes r.Path, if set: each part with a
// header of operation, end mark and error.
func appendParts(e *proto.Encoder, r *Request) {
	for _, path := range r.Checks {
		e.Int32(proto.OpCheck).Bool(false).Int32(unused).String(path).Int32(unused)
	}
	if r.Path != "" {
		e.Int32(proto.OpSetData).Bool(false).Int32(unused).String(r.Path).Buffer(r.Data).Int32(r.Version)
	}
	e.Int32(proto.OpError).Bool(true).Int32(unused)
}

// decodeParts finds the first refused part of a Multi of checks and a write. Earlier parts have no error, and later
// parts have another error. decodeParts returns false for a malformed answer.
func decodeParts(d *proto.Decoder, a *Answer) (ok bool) {
	for i := 0; ; i++ {
		kind, isEnd, _ := d.Int32(), d.Bool(), d.Int32()
		switch {
		case isEnd, d.Err() != nil:
			return d.Err() == nil
		case kind == proto.OpError:
			if err := errorOf(d.Int32()); err != nil && a.Refused < 0 {
				a.Refused, a.Err = i, err
			}
		case kind == proto.OpSetData:
			a.Stat = d.Stat()
		case kind != proto.OpCheck:
			return false
		}
	}
}
