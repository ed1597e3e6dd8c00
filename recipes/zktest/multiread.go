package zktest

import "github.com/zkrecipes/zkrecipes/internal/proto"

// multiRead answers several reads at once; a refused one keeps none of the others from being
// answered. As in the real server it sets no watch, whatever a part says.
func (l *line) multiRead(d *proto.Decoder) (body *proto.Encoder, code int32) {
	parts, code := readParts(d)
	if code != proto.CodeOK {
		return nil, code
	}
	body = proto.NewEncoder()
	for _, p := range parts {
		if p.path == nil || !isReadPart(p.op) {
			code = proto.CodeMarshallingError // as odd as in the real server: behind it comes what was read so far
			break
		}
		result, refused := l.look(p.op, string(p.path), false)
		if refused != proto.CodeOK {
			body.Int32(proto.OpError).Bool(false).Int32(refused).Int32(refused)
			continue
		}
		body.Int32(p.op).Bool(false).Int32(proto.CodeOK).Raw(result.Body())
	}
	return body.Int32(proto.OpError).Bool(true).Int32(proto.OpError), code
}

// readPart is a part of a MultiRead.
type readPart struct {
	op   int32
	path []byte // nil: null
}

// readParts reads all parts of a MultiRead. Those of a Multi may stand there too, as long as no
// read is among them: they are found out later.
func readParts(d *proto.Decoder) (parts []readPart, code int32) {
	for {
		op, end := d.Int32(), d.Bool()
		d.Int32() // an error, unused in requests
		switch {
		case d.Err() != nil:
			return nil, proto.CodeMarshallingError
		case end:
			return parts, proto.CodeOK
		case len(parts) > 0 && isReadPart(op) != isReadPart(parts[0].op):
			return nil, proto.CodeMarshallingError
		}
		p := readPart{op: op, path: d.Buffer()}
		if !skipPart(op, d) || d.Err() != nil {
			return nil, proto.CodeMarshallingError
		}
		parts = append(parts, p)
	}
}

// isReadPart tells what a MultiRead may consist of.
func isReadPart(op int32) bool { return op == proto.OpGetData || op == proto.OpGetChildren }

// skipPart reads what stands behind a part's path. It returns false where nothing may stand.
func skipPart(op int32, d *proto.Decoder) bool {
	switch op {
	case proto.OpGetData, proto.OpGetChildren:
		d.Bool() // whether to watch
	case proto.OpDelete, proto.OpCheck:
		d.Int32()
	case proto.OpSetData:
		d.Buffer()
		d.Int32()
	case proto.OpCreate, proto.OpCreate2, proto.OpCreateContainer:
		d.Buffer()
		d.ACL()
		d.Int32()
	case proto.OpCreateTTL:
		d.Buffer()
		d.ACL()
		d.Int32()
		d.Int64()
	default:
		return false
	}
	return true
}
