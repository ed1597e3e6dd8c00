package wire

import (
	"slices"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// unused stands in headers of parts for what means nothing.
const unused = -1

// appendChecks writes a Multi that checks whether znodes exist: each part with a header of operation,
// end mark and error.
func appendChecks(e *proto.Encoder, paths []string) {
	for _, path := range paths {
		e.Int32(proto.OpCheck).Bool(false).Int32(unused).String(path).Int32(unused)
	}
	e.Int32(proto.OpError).Bool(true).Int32(unused)
}

// appendReads writes a MultiRead of the children of znodes.
func appendReads(e *proto.Encoder, paths []string) {
	for _, path := range paths {
		e.Int32(proto.OpGetChildren).Bool(false).Int32(unused).String(path).Bool(false)
	}
	e.Int32(proto.OpError).Bool(true).Int32(unused)
}

// decodeChecks finds the first part of a Multi of checks that was refused. Parts before it have no error,
// and those behind it have another one. It returns false for an answer that is malformed.
func decodeChecks(d *proto.Decoder, a *Answer) (ok bool) {
	parts, ok := decodeParts(d, proto.OpCheck)
	a.Refused = slices.IndexFunc(parts, func(err error) bool { return err != nil })
	if a.Refused >= 0 {
		a.Err = parts[a.Refused]
	}
	return ok
}

// decodeReads records why each read of a MultiRead was refused. It returns false for an answer that is malformed.
func decodeReads(d *proto.Decoder, a *Answer) (ok bool) {
	a.Reads, ok = decodeParts(d, proto.OpGetChildren)
	return ok
}

// decodeParts reads an answer in parts, all of one operation. It returns for each part why that was refused, nil if it was not.
func decodeParts(d *proto.Decoder, op int32) (refusals []error, ok bool) {
	for {
		kind, isEnd, _ := d.Int32(), d.Bool(), d.Int32()
		switch {
		case isEnd, d.Err() != nil:
			return refusals, d.Err() == nil
		case kind == proto.OpError:
			refusals = append(refusals, errorOf(d.Int32()))
			continue
		case kind != op:
			return refusals, false
		case op == proto.OpGetChildren:
			d.Strings()
		}
		refusals = append(refusals, nil)
	}
}
