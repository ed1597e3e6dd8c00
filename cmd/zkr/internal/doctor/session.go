package doctor

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/await"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// maxClose bounds the end of a session whose servers are silent: it ends by itself.
const maxClose = time.Second

// closeSoon closes a client within maxClose, even if ctx is over.
func closeSoon(ctx context.Context, client *recipes.Client) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxClose)
	defer cancel()
	_ = await.Do(ctx, client.Close) // the session ends by itself
}

// How often, and for how long in all, commits are timed.
const (
	commitSamples = 5
	commitTime    = 10 * time.Second
)

// checkCommits times the commits by which leases live: transactions with nothing but a check, which need no more than
// READ.
func checkCommits(ctx context.Context, client *recipes.Client, prefix string) Finding {
	const what = "commit"
	timeout := client.SessionTimeout()
	bounded, cancel := context.WithTimeout(ctx, commitTime)
	defer cancel()
	checked := max(prefix, "/")
	var slowest time.Duration
	n := 0
	for began := time.Now(); n < commitSamples && time.Since(began) < commitTime && slowest <= timeout/3; n++ {
		sentAt := time.Now()
		_, err := await.Call(bounded, func() ([]zk.MultiResponse, error) {
			return client.Conn().Multi(&zk.CheckVersionRequest{Path: checked, Version: -1})
		})
		slowest = max(slowest, time.Since(sentAt))
		switch {
		case bounded.Err() != nil && n == 0:
			return Finding{levelBad, what, fmt.Sprintf("not within %v: leases are being lost; check the quorum and the disks", slowest.Round(time.Second))}
		case errors.Is(err, zk.ErrNoNode) && checked != "/":
			checked, n = "/", n-1
		case err != nil && !errors.Is(err, zk.ErrNoAuth) && bounded.Err() == nil: // a refusal is committed as well
			return Finding{levelBad, what, err.Error()}
		}
	}
	switch {
	case slowest > timeout/3:
		return Finding{levelBad, what, fmt.Sprintf("%v, above T/3: leases are being lost; check the disks", slowest.Round(100*time.Millisecond))}
	case slowest > timeout/12:
		return Finding{levelChange, what, fmt.Sprintf("%v, above T/12: leases are lost at T/3 = %v; check the disks", slowest.Round(10*time.Millisecond), timeout/3)}
	default:
		return Finding{levelOK, what, fmt.Sprintf("%v, the slowest of %d", round(slowest), n)}
	}
}

// checkChroot finds a chroot that does not exist.
func checkChroot(ctx context.Context, client *recipes.Client, chroot string) (finding Finding, isMissing bool) {
	if chroot == "" {
		return Finding{}, false
	}
	isThere, err := await.Call(ctx, func() (bool, error) {
		isThere, _, err := client.Conn().Exists(chroot)
		return isThere, err
	})
	return Finding{levelBad, "chroot " + chroot, "it does not exist: create it, or use --namespace, which is created on demand"}, err == nil && !isThere
}

// checkACL looks at who may change the directory under which all paths are.
func checkACL(ctx context.Context, client *recipes.Client, prefix string) Finding {
	dir := max(prefix, "/")
	what := "ACL of " + dir
	acl, err := await.Call(ctx, func() ([]zk.ACL, error) {
		acl, _, err := client.Conn().GetACL(dir)
		return acl, err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return Finding{levelOK, what, "it does not exist yet; it gets the ACL of the first client that creates it"}
	case errors.Is(err, zk.ErrNoAuth):
		return Finding{levelOK, what, "not open to all clients, and not to this user"}
	case err != nil:
		return Finding{levelBad, what, err.Error()}
	}
	const harmful = zk.PermDelete | zk.PermAdmin | zk.PermCreate
	if slices.ContainsFunc(acl, func(a zk.ACL) bool { return a.Scheme == "world" && a.Perms&harmful != 0 }) {
		return Finding{levelChange, what, "any client that reaches the servers can delete lock znodes: set an ACL, and give clients credentials (--auth-file)"}
	}
	return Finding{levelOK, what, "not open to all clients"}
}

// maxSkew is a harmless difference of clocks.
const maxSkew = time.Second

// checkPath tries the operations of a lock at a path: it lists, creates and deletes. If the path does not exist, it tries the
// next directory above, in which a lock would create the path. The created znode has the time of the leader's clock.
func checkPath(ctx context.Context, client *recipes.Client, dir string) []Finding {
	what := dir
	for {
		findings, isGone := checkDir(ctx, client, what, dir)
		if !isGone {
			return findings
		}
		dir = path.Dir(dir)
	}
}

// checkDir is checkPath for a directory. It reports false if the directory does not exist, because the server may remove
// an unused container at any time.
func checkDir(ctx context.Context, client *recipes.Client, what, dir string) (findings []Finding, isGone bool) {
	isMissing := func(err error) bool { return errors.Is(err, zk.ErrNoNode) && dir != "/" }
	_, err := await.Call(ctx, func() ([]string, error) {
		names, _, err := client.Conn().Children(dir)
		return names, err
	})
	switch {
	case isMissing(err):
		return nil, true
	case err != nil:
		return []Finding{{levelBad, what, fmt.Sprintf("this user may not list %s: %v", dir, err)}}, false
	}
	findings = []Finding{{levelOK, what, "this user may list " + dir}}
	probe := path.Join(dir, "zkr-doctor-"+zkutil.NewUUID()) // another doctor may have the same process id, in another container
	began := time.Now()
	_, err = await.Call(ctx, func() (string, error) {
		return client.Conn().Create(probe, []byte{}, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	})
	took := time.Since(began)
	switch {
	case isMissing(err):
		return nil, true
	case err != nil:
		return append(findings, Finding{levelBad, what, fmt.Sprintf("this user may not create in %s: %v", dir, err)}), false
	}
	findings = append(findings, Finding{levelOK, what, "this user may create in " + dir})
	stat, err := await.Call(ctx, func() (*zk.Stat, error) {
		isThere, stat, err := client.Conn().Exists(probe)
		if err == nil && !isThere {
			err = zk.ErrNoNode
		}
		if err != nil {
			return nil, err
		}
		return stat, client.Conn().Delete(probe, -1)
	})
	if stat != nil {
		findings = append(findings, checkSkew(time.UnixMilli(stat.Ctime).Sub(began.Add(took/2)).Round(time.Millisecond), took))
	}
	return append(findings, checkDeletion(what, dir, err)), false
}

// checkDeletion says whether a znode could be deleted, given the error of that.
func checkDeletion(what, dir string, err error) Finding {
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return Finding{levelChange, what, fmt.Sprintf("another client deleted the test znode in %s, or the session ended: run zkr doctor again", dir)}
	case err != nil:
		return Finding{levelBad, what, fmt.Sprintf("this user may not delete in %s: %v; locks would stay until their sessions end", dir, err)}
	default:
		return Finding{levelOK, what, "this user may delete in " + dir}
	}
}

func checkSkew(skew, took time.Duration) Finding {
	const what = "clock"
	if skew.Abs() > maxSkew+took {
		return Finding{levelChange, what, fmt.Sprintf(
			"that of the leader differs by %v: locks are not affected, but the times that ls and top show are; synchronise the clocks", skew)}
	}
	return Finding{levelOK, what, fmt.Sprintf("differs by %v from that of the leader", skew)}
}
