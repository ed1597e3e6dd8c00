package faultproxy

import (
	"fmt"
	"strings"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// Request is a client's request. A Multi has its operations in Parts and the path of the first of them as its own.
type Request struct {
	Time    time.Time
	Conn    int    // numbers the proxy's connections from 1
	Session int64  // 0 until the connection's handshake is answered; must not be logged
	Xid     int32  // the client's number for the request
	Op      string // create, create2, createContainer, …; connect for the handshake
	Path    string // where the operation has one
	Parts   []Part // of a multi or multiRead
}

// Part is one operation of a Multi.
type Part struct{ Op, Path string }

// String formats everything but the session.
func (r Request) String() string {
	s := fmt.Sprintf("#%d %s", r.Conn, r.Op)
	if len(r.Parts) > 0 {
		return s + fmt.Sprint(r.Parts)
	}
	if r.Path != "" {
		s += " " + r.Path
	}
	return s
}

// GoString is String: %#v must not show the session either.
func (r Request) GoString() string { return r.String() }

// Reply is the header of a server's answer.
type Reply struct {
	Zxid int64
	Err  int32 // a ZooKeeper error code, 0 for success
}

// Match picks requests.
type Match func(Request) bool

// Any matches every request but handshakes and pings.
func Any() Match { return func(r Request) bool { return r.Op != opConnect && r.Op != opPing } }

// Op matches requests with this operation.
func Op(name string) Match { return func(r Request) bool { return r.Op == name } }

// OpPath matches requests with this operation whose path contains the text.
func OpPath(name, text string) Match {
	return func(r Request) bool { return r.Op == name && strings.Contains(r.Path, text) }
}

// Creates matches every way to make a node: create, create2, createContainer and createTTL.
func Creates() Match {
	return func(r Request) bool {
		switch r.Op {
		case "create", "create2", "createContainer", "createTTL":
			return true
		}
		return false
	}
}

// MultiOf matches a Multi that has a part with this operation.
func MultiOf(name string) Match {
	return func(r Request) bool {
		for _, part := range r.Parts {
			if part.Op == name {
				return true
			}
		}
		return false
	}
}

const (
	opConnect = "connect"
	opPing    = "ping"
)

// operations names the codes of a request header (ZooDefs.OpCode) that package proto does not.
var operations = map[int32]string{
	proto.OpAuth: "setAuth", // named like the client's packet

	16:  "reconfig",
	17:  "checkWatches",
	18:  "removeWatches",
	22:  "multiRead",
	102: "sasl",
	103: "getEphemerals",
	104: "getAllChildrenNumber",
	105: "setWatches2",
	106: "addWatch",
	107: "whoAmI",
}

func operation(code int32) string {
	if name, ok := operations[code]; ok {
		return name
	}
	return proto.OpName(code)
}

// parseRequest reads a frame that follows the handshake.
func parseRequest(body []byte) Request {
	d := proto.NewDecoder(body)
	r := Request{Xid: d.Int32(), Op: operation(d.Int32())}
	switch r.Op {
	case opPing, "setAuth", "setWatches", "setWatches2", "sasl", "close", "reconfig", "whoAmI":
	case "multi", "multiRead":
		r.Parts = parseParts(d)
		if len(r.Parts) > 0 {
			r.Path = r.Parts[0].Path
		}
	default:
		r.Path = d.String()
	}
	return r
}

// parseParts reads the operations of a Multi up to its end mark, or up to one with unknown fields.
func parseParts(d *proto.Decoder) []Part {
	var parts []Part
	for d.Len() > 0 {
		name := operation(d.Int32())
		done := d.Bool()
		d.Int32() // error, unused in requests
		if done {
			break
		}
		parts = append(parts, Part{Op: name, Path: d.String()})
		switch name {
		case "create", "create2", "createContainer", "createTTL":
			d.Buffer() // data
			d.ACL()
			d.Int32() // flags
			if name == "createTTL" {
				d.Int64()
			}
		case "delete", "check":
			d.Int32() // version
		case "setData":
			d.Buffer()
			d.Int32()
		case "getData", "getChildren":
			d.Bool() // watch
		default:
			return parts
		}
	}
	return parts
}
