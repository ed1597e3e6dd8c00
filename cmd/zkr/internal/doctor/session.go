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

// closeSoon closes a client, within maxClose also when ctx has ended.
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
	for began := time.Now(); n < commitSamples && time.Since(began) < commitTime; n++ {
		sentAt := time.Now()
		_, err := await.Call(bounded, func() ([]zk.MultiResponse, error) {
			return client.Conn().Multi(&zk.CheckVersionRequest{Path: checked, Version: -1})
		})
		slowest = max(slowest, time.Since(sentAt))
		switch {
		case bounded.Err() != nil:
			return Finding{levelBad, what, fmt.Sprintf("not within %v: leases are being lost; look at the quorum and at the disks", slowest.Round(time.Second))}
		case errors.Is(err, zk.ErrNoNode) && checked != "/":
			checked, n = "/", n-1
		case err != nil && !errors.Is(err, zk.ErrNoAuth): // a refusal is committed as well
			return Finding{levelBad, what, err.Error()}
		}
	}
	switch {
	case slowest > timeout/3:
		return Finding{levelBad, what, fmt.Sprintf("%v, above T/3: leases are being lost; look at the disks", slowest.Round(100*time.Millisecond))}
	case slowest > timeout/12:
		return Finding{levelChange, what, fmt.Sprintf("%v, above T/12: leases are lost at T/3 = %v; look at the disks", slowest.Round(10*time.Millisecond), timeout/3)}
	default:
		return Finding{levelOK, what, fmt.Sprintf("%v, the slowest of %d", round(slowest), n)}
	}
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
		return Finding{levelOK, what, "it does not exist yet; it gets the ACL of the first client that makes it"}
	case errors.Is(err, zk.ErrNoAuth):
		return Finding{levelOK, what, "not open to everybody, nor to this user"}
	case err != nil:
		return Finding{levelBad, what, err.Error()}
	}
	const harmful = zk.PermDelete | zk.PermAdmin | zk.PermCreate
	if slices.ContainsFunc(acl, func(a zk.ACL) bool { return a.Scheme == "world" && a.Perms&harmful != 0 }) {
		return Finding{levelChange, what, "everybody who reaches the servers may delete lock znodes: set an ACL, and give clients credentials (--auth-file)"}
	}
	return Finding{levelOK, what, "not open to everybody"}
}

// maxSkew is a difference of clocks that nobody minds.
const maxSkew = time.Second

// checkPath does at a path what a lock does: it lists, creates and deletes. Where the path does not exist yet, or not any more, it
// does so at the next directory above, in which the path would be made. The znode that it makes has the time of the leader's
// clock.
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

// checkDir is checkPath for a directory, unless it is gone: the server removes a container that nobody uses at any time.
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
		return Finding{levelChange, what, fmt.Sprintf("somebody else has deleted a znode that was just made in %s, or the session has ended: ask again", dir)}
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
