// Package slowdisk makes the servers of an ensemble commit slowly, as on a disk that is busy: every fsync takes as long as
// a test says.
//
// A small library replaces fsync and fdatasync in the server's process; gcc builds it. Java's FileChannel.force(false),
// with which a server syncs its transaction log, is fdatasync, and force(true) is fsync. A commit takes one fsync on the
// leader and on a follower, at the same time, plus the rest of a running one: between one and two delays.
package slowdisk

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
)

//go:embed library/slowdisk.c
var source []byte

// Where things are inside a node.
const (
	library = "/slowdisk.so"
	told    = "/slowdisk"
)

// Install adds the settings for Slow, or returns the reason why Slow is impossible and leaves the settings unchanged.
// From then on, servers do not wait for their disks unless Slow says so, so the settings must not turn forceSync off.
func Install(ctx context.Context, cfg *ensemble.Config) error {
	dir, err := os.MkdirTemp("", "slowdisk-")
	if err != nil {
		return fmt.Errorf("slowdisk: %w", err)
	}
	defer os.RemoveAll(dir)
	from, to := filepath.Join(dir, "slowdisk.c"), filepath.Join(dir, "slowdisk.so")
	if err := os.WriteFile(from, source, 0o600); err != nil {
		return fmt.Errorf("slowdisk: %w", err)
	}
	said, err := exec.CommandContext(ctx, "gcc", "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", to, from).CombinedOutput()
	if err != nil {
		return fmt.Errorf("slowdisk: gcc: %w: %s", err, said)
	}
	built, err := os.ReadFile(to)
	if err != nil {
		return fmt.Errorf("slowdisk: %w", err)
	}
	if cfg.Files == nil {
		cfg.Files = make(map[string][]byte)
	}
	if cfg.Env == nil {
		cfg.Env = make(map[string]string)
	}
	cfg.Files[library], cfg.Env["LD_PRELOAD"] = built, library
	return nil
}

// Slow makes each fsync of every server take this long from now on; 0 restores the normal speed.
func Slow(ctx context.Context, servers *ensemble.Ensemble, delay time.Duration) error {
	errs := make([]error, len(servers.Servers()))
	var all sync.WaitGroup // each ends with ctx; joined here
	for i := range errs {
		all.Go(func() { errs[i] = SlowOne(ctx, servers, i, delay) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// SlowOne is Slow for one server.
func SlowOne(ctx context.Context, servers *ensemble.Ensemble, i int, delay time.Duration) error {
	script := "rm -f " + told
	if delay > 0 {
		script = "echo " + strconv.FormatInt(delay.Microseconds(), 10) + " >" + told
	}
	_, err := servers.Exec(ctx, i, "sh", "-c", script)
	return err
}
