package conformance

import (
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// answer returns the text of a reply's body after its header.
func (r *Runner) answer(op int32, body *proto.Decoder) string {
	text := r.result(op, body)
	if body.Err() != nil {
		text += " !malformed"
	}
	if body.Len() > 0 {
		text += fmt.Sprintf(" !%d bytes more", body.Len())
	}
	return text
}

// result returns the text of a successful operation's result.
func (r *Runner) result(op int32, body *proto.Decoder) string {
	switch op {
	case proto.OpCreate, proto.OpSync:
		return " path=" + r.returned(op, body.Text())
	case proto.OpCreate2, proto.OpCreateContainer, proto.OpCreateTTL:
		return " path=" + r.returned(op, body.String()) + r.stat(body.Stat())
	case proto.OpExists, proto.OpSetData, proto.OpSetACL:
		return r.stat(body.Stat())
	case proto.OpGetData:
		return " data=" + content(body.Buffer()) + r.stat(body.Stat())
	case proto.OpGetChildren:
		return names(body.Strings())
	case proto.OpGetChildren2:
		return names(body.Strings()) + r.stat(body.Stat())
	case proto.OpGetACL:
		return acls(body.ACL()) + r.stat(body.Stat())
	case proto.OpAddWatch:
		if code := body.Int32(); code != proto.CodeOK {
			return fmt.Sprintf(" !%d", code)
		}
	case proto.OpMulti, proto.OpMultiRead:
		return r.multi(body)
	}
	return ""
}

// multi returns the text of the results of a transaction or a multiRead: " | create path=/x
// | check".
func (r *Runner) multi(body *proto.Decoder) string {
	var b strings.Builder
	for {
		op, done, code := body.Int32(), body.Bool(), body.Int32()
		if body.Err() != nil {
			return b.String()
		}
		if done {
			if op != -1 || code != -1 {
				fmt.Fprintf(&b, " | !end %d %d", op, code)
			}
			return b.String()
		}
		if op == proto.OpError {
			result := body.Int32()
			fmt.Fprintf(&b, " | %s", proto.CodeName(result))
			if code != result {
				fmt.Fprintf(&b, " !header %d", code)
			}
			continue
		}
		fmt.Fprintf(&b, " | %s%s", proto.OpName(op), r.result(op, body))
		if code != 0 {
			fmt.Fprintf(&b, " !header %d", code)
		}
	}
}

// returned records a path that the server has created, so that scripts can refer to it.
// Top-level paths don't count: see generator.below.
func (r *Runner) returned(op int32, path string) string {
	if op != proto.OpSync && strings.LastIndex(path, "/") > 0 {
		r.made = append(r.made, path)
	}
	if path == proto.Null {
		return "null"
	}
	return quote(path)
}

// stat returns the text of a znode's stat.
func (r *Runner) stat(s zk.Stat) string {
	text := fmt.Sprintf(" czxid=%s mzxid=%s pzxid=%s v=%d cv=%d av=%d owner=%s len=%d children=%d",
		r.showZxid(s.Czxid), r.showZxid(s.Mzxid), r.showZxid(s.Pzxid), s.Version, s.Cversion, s.Aversion,
		r.owner(s.EphemeralOwner), s.DataLength, s.NumChildren)
	return text + r.checkTime(s.Czxid, s.Ctime) + r.checkTime(s.Mzxid, s.Mtime)
}

// content returns the text of a znode's data.
func content(data []byte) string {
	switch {
	case data == nil:
		return "null"
	case len(data) > 64:
		return fmt.Sprintf("%d bytes, crc32 %08x", len(data), crc32.ChecksumIEEE(data))
	}
	return strconv.Quote(string(data))
}

// quote returns a path in the notation of scripts.
func quote(path string) string { return Arg{Value: path}.String() }

// names returns the text of a list of children, whose order is arbitrary.
func names(list []string) string {
	slices.Sort(list)
	for i, name := range list {
		list[i] = printable(name)
	}
	return " [" + strings.Join(list, " ") + "]"
}

// acls returns the text of an ACL. Digests with the same permissions are sorted, because
// the server takes the identities for "auth" from a set.
func acls(list []zk.ACL) string {
	for from := 0; from < len(list); {
		to := from + 1
		for to < len(list) && list[from].Scheme == "digest" && list[to].Scheme == "digest" && list[from].Perms == list[to].Perms {
			to++
		}
		slices.SortFunc(list[from:to], func(a, b zk.ACL) int { return strings.Compare(a.ID, b.ID) })
		from = to
	}
	var b strings.Builder
	for _, entry := range list {
		fmt.Fprintf(&b, " acl=%s:%s:%s", entry.Scheme, entry.ID, formatPerms(entry.Perms))
	}
	return b.String()
}
