package wire

import "github.com/zkrecipes/zkrecipes/internal/proto"

// unused stands for meaningless fields in headers of parts.
const unused = -1

// anyVersion of a znode's data.
const anyVersion = -1

// appendParts writes a Multi that checks whether znodes exist, creates and deletes others, and then writes or deletes r.Path, if set: each
// part with a header of operation, end mark and error.
func appendParts(e *proto.Encoder, r *Request) {
	for _, path := range r.Checks {
		e.Int32(proto.OpCheck).Bool(false).Int32(unused).String(path).Int32(unused)
	}
	for _, c := range r.Creates {
		e.Int32(proto.OpCreate).Bool(false).Int32(unused).String(c.Path).Buffer(c.Data).ACL(r.ACL).Int32(r.Flags)
	}
	for _, path := range r.Removes {
		e.Int32(proto.OpDelete).Bool(false).Int32(unused).String(path).Int32(anyVersion)
	}
	switch {
	case r.Path == "":
	case r.Deletes:
		e.Int32(proto.OpDelete).Bool(false).Int32(unused).String(r.Path).Int32(r.Version)
	default:
		e.Int32(proto.OpSetData).Bool(false).Int32(unused).String(r.Path).Buffer(r.Data).Int32(r.Version)
	}
	e.Int32(proto.OpError).Bool(true).Int32(unused)
}

// decodeParts finds the paths of created znodes, or the first refused part of a Multi. Earlier parts have no error, and later parts have
// another error. decodeParts returns false for a malformed answer.
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
		case kind == proto.OpCreate:
			a.Created = append(a.Created, d.String())
		case kind == proto.OpSetData:
			a.Stat = d.Stat()
		case kind != proto.OpCheck && kind != proto.OpDelete:
			return false
		}
	}
}
