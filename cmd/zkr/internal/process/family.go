//go:build linux

package process

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/cgroup"
)

// ID identifies a process. The number alone may be given to another process later.
type ID struct {
	PID   int
	Start uint64 // in clock ticks since the machine was started
}

// Family is a command with its direct and indirect descendants. A program may leave its group, its session and its parents,
// and overwrite its environment, so any of several marks identifies a member:
//
//   - the process group;
//   - the control group, where one could be made;
//   - the tree of parents, in which zkr is the parent of those that have lost theirs;
//   - the environment, which is left when zkr was killed where there is no control group.
type Family struct {
	Group  int          // 0: unknown yet
	Cgroup cgroup.Group // "": none
	Zkr    ID           // the process from which all members descend, while it lives
	Others []ID         // children of zkr that are no members, nor are their descendants
	Tag    string       // NAME=value of the environment
	Known  []ID         // members that were seen before; zkr may no longer be their ancestor
}

// Subreap makes this process the new parent of orphaned descendants.
func Subreap() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } // every Linux since 3.4 has it

// Self returns the identity of this process.
func Self() ID {
	s, _ := readStat(os.Getpid())
	return ID{os.Getpid(), s.start}
}

// Children returns the children of this process.
func Children() (ids []ID) {
	for _, pid := range childrenOf(os.Getpid()) {
		if s, ok := readStat(pid); ok {
			ids = append(ids, ID{pid, s.start})
		}
	}
	return ids
}

// Remember records the living members, except the process dog, in case zkr is killed. With a control group, it does nothing. It
// looks only at the members, not at all processes, because it is called all the time.
func (f *Family) Remember(dog int) {
	if zkr, ok := readStat(f.Zkr.PID); f.Cgroup != "" || !ok || zkr.start != f.Zkr.Start {
		return
	}
	known := []ID{}
	for parents := []int{f.Zkr.PID}; len(parents) > 0; parents = parents[1:] {
		for _, pid := range childrenOf(parents[0]) {
			s, ok := readStat(pid)
			if id := (ID{pid, s.start}); ok && pid != dog && !slices.Contains(f.Others, id) {
				known, parents = append(known, id), append(parents, pid)
			}
		}
	}
	f.Known = known
}

// childrenOf returns the children of all threads of a process. Few kernels, built without CONFIG_PROC_CHILDREN, do not list them.
func childrenOf(pid int) (pids []int) {
	files, _ := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "task", "*", "children"))
	if len(files) == 0 {
		for child, s := range snapshot() {
			if s.parent == pid {
				pids = append(pids, child)
			}
		}
		return pids
	}
	for _, file := range files {
		text, _ := os.ReadFile(file) // the thread may be dead
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// Leavers returns the living members outside the process group. The watchdog, process dog, is no member.
func (f *Family) Leavers(dog int) []int {
	all := snapshot()
	return slices.DeleteFunc(f.members(all, dog), func(pid int) bool { return f.Group != 0 && all[pid].group == f.Group })
}

// SignalLeavers sends a signal to the members outside the process group.
func (f *Family) SignalLeavers(dog int, s unix.Signal) {
	for _, pid := range f.Leavers(dog) {
		_ = unix.Kill(pid, s) // fails if the process is dead
	}
}

// KillGroup kills the process group alone.
func (f *Family) KillGroup() {
	if f.Group > 1 {
		_ = unix.Kill(-f.Group, unix.SIGKILL) // fails if the whole group is dead
	}
}

// sweepTime bounds how long Kill looks for members.
const sweepTime = time.Second

// Kill kills all members. A process may fork, and its parent die, while Kill reads /proc, so Kill stops only after it finds no
// member twice in a row.
func (f *Family) Kill(dog int) {
	f.KillGroup()
	f.Cgroup.Kill()
	empty := 0
	for began := time.Now(); time.Since(began) < sweepTime && empty < 2; {
		pids := f.members(snapshot(), dog)
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL) // fails if the process is dead
		}
		empty++
		if len(pids) > 0 {
			empty = 0
		}
	}
}

// members returns the living members.
func (f *Family) members(all map[int]stat, dog int) (pids []int) {
	inCgroup := f.Cgroup.Members()
	for pid, s := range all {
		if pid == dog || !s.isAlive() {
			continue
		}
		if f.descends(all, pid, dog) || slices.Contains(inCgroup, pid) || f.Tag != "" && hasInEnvironment(pid, f.Tag) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// descends reports whether a process descends from zkr or from a member that is known, by a line without others.
func (f *Family) descends(all map[int]stat, pid, dog int) bool {
	for range all {
		s, isThere := all[pid]
		id := ID{pid, s.start}
		switch {
		case !isThere || pid == dog || slices.Contains(f.Others, id):
			return false
		case f.isZkr(all, s.parent) || slices.Contains(f.Known, id):
			return true
		}
		pid = s.parent
	}
	return false
}

// isZkr reports whether a process is zkr, of which a watchdog that has had no message yet knows nothing.
func (f *Family) isZkr(all map[int]stat, pid int) bool {
	s, isThere := all[pid]
	return isThere && f.Zkr == ID{pid, s.start}
}

// snapshot returns all processes.
func snapshot() map[int]stat {
	all := map[int]stat{}
	for _, pid := range list() {
		if s, ok := readStat(pid); ok {
			all[pid] = s
		}
	}
	return all
}
