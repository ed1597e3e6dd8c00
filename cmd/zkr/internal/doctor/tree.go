package doctor

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// checkACL looks at who may change the directory under which all paths are.
func checkACL(client *recipes.Client, prefix string) finding {
	path := max(prefix, "/")
	what := "ACL of " + path
	acl, _, err := client.Conn().GetACL(path)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return finding{levelUnknown, what, "it does not exist yet; it gets the ACL of the first client that makes it"}
	case err != nil:
		return finding{levelUnknown, what, err.Error()}
	}
	const harmful = zk.PermDelete | zk.PermAdmin | zk.PermCreate
	if slices.ContainsFunc(acl, func(a zk.ACL) bool { return a.Scheme == "world" && a.Perms&harmful != 0 }) {
		return finding{levelChange, what, "everybody who reaches the servers may delete lock znodes: set an ACL, and give clients credentials (--auth-file)"}
	}
	return finding{levelOK, what, "not open to everybody"}
}

// maxSkew is a difference of clocks that nobody minds.
const maxSkew = time.Second

// checkClock makes a znode, whose time is that of the leader's clock, and deletes it.
func checkClock(client *recipes.Client, prefix string) finding {
	const what = "clock"
	path := fmt.Sprintf("%s/zkr-doctor-%d", prefix, os.Getpid())
	began := time.Now()
	_, err := client.Conn().Create(path, []byte{}, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	took := time.Since(began)
	if err != nil {
		return finding{levelUnknown, what, fmt.Sprintf("%s can't be made, whose time would tell: %v", path, err)}
	}
	_, stat, err := client.Conn().Exists(path)
	if err == nil {
		err = client.Conn().Delete(path, -1)
	}
	if err != nil {
		return finding{levelUnknown, what, err.Error()}
	}
	skew := time.UnixMilli(stat.Ctime).Sub(began.Add(took / 2)).Round(time.Millisecond)
	if skew.Abs() > maxSkew+took {
		return finding{levelChange, what, fmt.Sprintf(
			"that of the leader differs by %v: locks do not mind, but the times that ls and top show do; synchronise the clocks", skew)}
	}
	return finding{levelOK, what, fmt.Sprintf("differs by %v from that of the leader; a commit took %v", skew, took.Round(100*time.Microsecond))}
}
