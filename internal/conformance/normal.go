package conformance

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// normal normalises values that vary between servers and runs: zxids count from the first
// zxid seen, sessions have names, and times are only checked for consistency, because all
// stamps of a transaction show the same time.
type normal struct {
	base  int64            // the first zxid seen
	times map[int64]int64  // zxid to time
	named map[int64]string // session id to name
}

// see records a zxid, which becomes the base if it is the first.
func (n *normal) see(zxid int64) {
	if n.base == 0 {
		n.base = zxid
	}
}

// showZxid returns "z+7", "old" for a zxid before the first zxid seen, or "0".
func (n *normal) showZxid(zxid int64) string {
	switch {
	case zxid <= 0:
		return strconv.FormatInt(zxid, 10)
	case zxid < n.base || n.base == 0:
		return "old"
	}
	return "z+" + strconv.FormatInt(zxid-n.base, 10)
}

// zxid is the inverse of showZxid; a number without "z" stands for itself.
func (n *normal) zxid(text string) (int64, error) {
	relative, ok := strings.CutPrefix(text, "z")
	zxid, err := strconv.ParseInt(relative, 10, 64)
	if ok {
		zxid += n.base
	}
	return zxid, err
}

// checkTime returns "" unless another stamp of the same transaction showed another time.
func (n *normal) checkTime(zxid, stamp int64) string {
	known, ok := n.times[zxid]
	if !ok {
		n.times[zxid] = stamp
		known = stamp
	}
	if known != stamp {
		return fmt.Sprintf(" !time of %s is %d ms off", n.showZxid(zxid), stamp-known)
	}
	return ""
}

// owner names the owner in an ephemeralOwner.
func (n *normal) owner(id int64) string {
	switch {
	case id == 0:
		return "none"
	case id == proto.ContainerOwner:
		return "container"
	case id>>56 == -1:
		return "ttl:" + strconv.FormatInt(id-proto.TTLOwner, 10)
	case n.named[id] != "":
		return n.named[id]
	}
	return "stranger"
}
