//go:build linux

package main_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// stays is the end of a daemon's script. It writes its id to a file and ignores SIGTERM.
const stays = `trap "" TERM; echo $$ > $0; while :; do sleep 0.05; done`

// perlStays is the same in Perl, with a long title, which overwrites the environment that others see in /proc.
const perlStays = `my $f = $ARGV[0]; $0 = "kv-server *:6379" . " " x 8000; $SIG{TERM} = "IGNORE"; open(F, ">", $f); print F "$$\n"; close(F); select(undef, undef, undef, 0.05) while 1;`

// daemons are scripts that start a process which leaves the process group of the command, each in another way. The key is
// the file to which the process writes its id.
var daemons = map[string]string{
	"double-fork": `(setsid sh -c '` + stays + `' double-fork &)`,
	"env-i":       `env -i "PATH=$PATH" setsid sh -c '` + stays + `' env-i &`,
	"overwrites":  `perl -e 'use POSIX; POSIX::setpgid(0, 0); ` + perlStays + `' overwrites &`,
	"new-title":   `perl -e 'use POSIX; exit if fork; POSIX::setsid(); exit if fork; close(STDIN); ` + perlStays + `' new-title`,
	"nohup":       `bash -c 'set -m; env -i "PATH=$PATH" nohup sh -c '\''` + stays + `'\'' nohup &'`,
}

// startDaemons starts a zkr whose command starts all daemons and then runs a script. It returns the daemons and the command.
func (w *world) startDaemons(change func(*exec.Cmd), script string, args ...string) (r *run, pids []int) {
	w.Helper()
	names := slices.Sorted(maps.Keys(daemons))
	begin := "exec > /dev/null 2>&1\n"
	for _, name := range names {
		begin += daemons[name] + "\nwhile [ ! -s " + name + " ]; do sleep 0.01; done\n"
	}
	r = w.startWith(change, append(append([]string{"lock"}, args...), "/l", "--", "sh", "-c", begin+"echo $$ > parent\n"+script)...)
	for _, name := range append(names, "parent") {
		pids = append(pids, w.pid(name))
	}
	w.Cleanup(func() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return r, pids
}

// cgroupOf returns the folder of a process's cgroup of version 2, "" if there is none.
func cgroupOf(process string) string {
	text, _ := os.ReadFile("/proc/" + process + "/cgroup")
	_, path, isIn := strings.Cut("\n"+string(text), "\n0::")
	path, _, _ = strings.Cut(path, "\n")
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); isIn && strings.Contains(line, " - cgroup2 ") && fields[3] == "/" {
			return filepath.Join(fields[4], path)
		}
	}
	return ""
}

// cgroupMode is a way to start zkr.
type cgroupMode struct {
	hasCgroup bool // zkr can make cgroups
	change    func(*exec.Cmd)
}

// cgroupModes are the available modes: the machine as it is and, if zkr can create cgroups, also without cgroups.
func cgroupModes(t *testing.T) map[string]cgroupMode {
	t.Helper()
	own := cgroupOf("self")
	probe, err := os.MkdirTemp(own, "probe-*") //nolint:usetesting // a folder there becomes a cgroup
	if own == "" || err != nil {
		t.Log("no cgroup can be made on this machine")
		return map[string]cgroupMode{"without cgroups": {false, func(*exec.Cmd) {}}}
	}
	require.NoError(t, os.Remove(probe))
	unmount := func(c *exec.Cmd) {
		c.Args = append([]string{"unshare", "-m", "sh", "-c", `
sed -n 's/^[^ ]* [^ ]* [^ ]* [^ ]* \([^ ]*\) .* - cgroup2 .*/\1/p' /proc/self/mountinfo | xargs -r -n1 umount -l; exec "$@"`, "sh", c.Path}, c.Args[1:]...)
		c.Path = "/usr/bin/unshare"
	}
	return map[string]cgroupMode{"with cgroups": {true, func(*exec.Cmd) {}}, "without cgroups": {false, unmount}}
}

// awaitRemoved waits for the deletion of a command's cgroup, if zkr created one.
func (w *world) awaitRemoved(mode cgroupMode, cgroup string) {
	w.Helper()
	require.Equal(w, mode.hasCgroup, strings.HasPrefix(filepath.Base(cgroup), "zkr-"), cgroup)
	if mode.hasCgroup {
		w.eventually(func() bool { _, err := os.Stat(cgroup); return os.IsNotExist(err) }, cgroup+" was removed")
	}
}

// TestDaemonsEndWithTheLock has daemons that can't be found by their environment: none outlives the lock.
func TestDaemonsEndWithTheLock(t *testing.T) {
	for end, act := range map[string]func(*world, *run){
		"kicked":  func(w *world, _ *run) { w.server.Delete(w.awaitContenders("/l", 1)[0]) },
		"expired": func(w *world, _ *run) { w.server.Expire(w.owner()) },
		"revoked": func(w *world, _ *run) { require.Equal(w, 0, w.run("revoke", "/l").code) },
		"silent":  func(w *world, _ *run) { w.server.Partition(w.owner()) },
		"stopped": func(w *world, r *run) {
			r.signal(syscall.SIGSTOP)
			w.hold("/l", "next")
		},
		"killed": func(w *world, r *run) {
			requests := w.server.Observe()
			defer requests.Stop()
			awaitHeartbeats(w.T, requests, 4) // without cgroups the watchdog looks for the daemons every second
			r.signal(syscall.SIGKILL)
			r.await()
		},
	} {
		for name, mode := range cgroupModes(t) {
			t.Run(end+" "+name, func(t *testing.T) {
				w := newWorld(t)
				r, pids := w.startDaemons(mode.change, "exec sleep 100", "--session-timeout", shortSession.String(), "--grace", "300ms")
				cgroup := cgroupOf(strconv.Itoa(pids[0]))
				act(w, r)
				switch end {
				case "killed":
					w.awaitDead(pids...)
				case "stopped":
				default:
					r.await()
				}
				for _, pid := range pids {
					require.False(t, isAlive(pid))
				}
				w.awaitRemoved(mode, cgroup)
			})
		}
	}
}

// TestDaemonsOutliveACommandThatEndsInOrder: they are left alone, in the cgroup of zkr.
func TestDaemonsOutliveACommandThatEndsInOrder(t *testing.T) {
	for name, mode := range cgroupModes(t) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			r, pids := w.startDaemons(mode.change, "while [ ! -e go ]; do sleep 0.01; done; exit 3")
			cgroup := cgroupOf(strconv.Itoa(pids[0]))
			require.NoError(t, os.WriteFile(w.file("go"), nil, 0o600))
			require.Equal(t, 3, r.code(), r.stderr.String())
			for _, pid := range pids[:len(daemons)] {
				require.True(t, isAlive(pid))
				require.Equal(t, cgroupOf("self"), cgroupOf(strconv.Itoa(pid)))
			}
			w.awaitRemoved(mode, cgroup)
		})
	}
}

// TestChildrenFromBeforeAreLeftAlone starts zkr by exec from a script with children, which do not belong to the
// command.
func TestChildrenFromBeforeAreLeftAlone(t *testing.T) {
	for name, mode := range cgroupModes(t) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			r := w.startWith(func(c *exec.Cmd) {
				mode.change(c)
				c.Args = append([]string{"sh", "-c", `sh -c 'echo $$ > before; sleep 100 & echo $! > below; wait' > /dev/null 2>&1 & exec "$@"`, "sh", c.Path}, c.Args[1:]...)
				c.Path = "/bin/sh"
			}, "lock", "--grace", "300ms", "/l", "--", "sh", "-c", "echo $$ > parent; exec sleep 100")
			pids := []int{w.pid("before"), w.pid("below")}
			w.Cleanup(func() {
				for _, pid := range pids {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			})
			parent := w.pid("parent")
			w.server.Delete(w.awaitContenders("/l", 1)[0])
			require.Equal(t, 74, r.code())
			require.False(t, isAlive(parent))
			for _, pid := range pids {
				require.True(t, isAlive(pid))
			}
		})
	}
}

// TestNestedLocksLeaveNoCgroup ends or kills an outer zkr, and requires that the inner one's cgroup is removed, too.
func TestNestedLocksLeaveNoCgroup(t *testing.T) {
	for end, act := range map[string]func(*world, *run){
		"kicked": func(w *world, _ *run) { w.server.Delete(w.awaitContenders("/outer", 1)[0]) },
		"killed": func(_ *world, r *run) { r.signal(syscall.SIGKILL) },
		"signal": func(_ *world, r *run) { r.signal(syscall.SIGTERM) },
	} {
		for name, mode := range cgroupModes(t) {
			t.Run(end+" "+name, func(t *testing.T) {
				w := newWorld(t)
				r := w.startWith(mode.change, "lock", "--grace", "300ms", "/outer", "--", binary, "lock", "/inner", "--", "sh", "-c", "echo $$ > parent; exec sleep 100")
				parent := w.pid("parent")
				inner := cgroupOf(strconv.Itoa(parent))
				act(w, r)
				r.await()
				w.awaitDead(parent)
				w.awaitRemoved(mode, inner)
				w.awaitRemoved(mode, filepath.Dir(inner))
			})
		}
	}
}

// TestInnerZkrThatOutlivesTheOuter keeps its cgroup, and removes both in the end.
func TestInnerZkrThatOutlivesTheOuter(t *testing.T) {
	for name, mode := range cgroupModes(t) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			r := w.startWith(mode.change, "lock", "/l", "--", "sh", "-c", "setsid "+binary+` lock --grace 300ms /inner -- sh -c '
setsid sh -c "echo \$\$ > orphan; exec sleep 100" &
echo $PPID > child; while [ ! -s orphan ]; do sleep 0.01; done; echo $$ > parent; exec sleep 100' > /dev/null 2>&1 &
while [ ! -s parent ]; do sleep 0.01; done; exit 3`)
			pids := []int{w.pid("parent"), w.pid("child"), w.pid("orphan")}
			w.Cleanup(func() {
				for _, pid := range pids {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			})
			inner := cgroupOf(strconv.Itoa(pids[0]))
			require.Equal(t, 3, r.code(), r.stderr.String())
			for _, pid := range pids {
				require.True(t, isAlive(pid))
			}
			require.Equal(t, inner, cgroupOf(strconv.Itoa(pids[0])))
			w.server.Delete(w.awaitContenders("/inner", 1)[0])
			w.awaitDead(pids...)
			w.awaitRemoved(mode, inner)
			w.awaitRemoved(mode, filepath.Dir(inner))
		})
	}
}

// TestCgroupOfAKilledZkrAndWatchdog is removed by the next zkr, if no process is left in it.
func TestCgroupOfAKilledZkrAndWatchdog(t *testing.T) {
	for name, mode := range cgroupModes(t) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			r := w.startWith(mode.change, "lock", "/l", "--", "sh", "-c", "echo $$ > parent; exec sleep 100")
			parent := w.pid("parent")
			cgroup := cgroupOf(strconv.Itoa(parent))
			zkr, dog := r.cmd.Process.Pid, watchdogOf(r.cmd.Process.Pid)
			require.NoError(t, syscall.Kill(zkr, syscall.SIGSTOP)) // it starts no other watchdog
			require.NoError(t, syscall.Kill(dog, syscall.SIGKILL))
			require.NoError(t, syscall.Kill(zkr, syscall.SIGKILL))
			r.await()
			w.awaitDead(parent)
			require.Equal(t, 0, w.startWith(mode.change, "lock", "/m", "--", "true").code())
			w.awaitRemoved(mode, cgroup)
		})
	}
}
