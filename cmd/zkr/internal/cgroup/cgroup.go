// Package cgroup keeps a command and its descendants in a control group (version 2). A process can't leave the group by
// changing its environment, parent or process group, and one write kills all members.
package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// prefix starts the name of a folder created by New. The process id follows.
const prefix = "zkr-"

// Group is a control group, identified by its folder. The group "" has no members, and its methods do nothing.
type Group string

// New creates a group below the group of this process. It returns "" without the permission to do so.
func New() Group {
	own := ownFolder()
	if own == "" {
		return ""
	}
	removeAbandoned(own)
	dir, err := os.MkdirTemp(own, fmt.Sprintf("%s%d-*", prefix, os.Getpid()))
	if err != nil {
		return ""
	}
	if _, err := os.Stat(filepath.Join(dir, "cgroup.kill")); err != nil { // Linux before 5.14
		_ = os.Remove(dir)
		return ""
	}
	return Group(dir)
}

// removeAbandoned removes the empty groups of processes that were killed together with their watchdogs.
func removeAbandoned(own string) {
	entries, _ := os.ReadDir(own)
	for _, entry := range entries {
		name, isGroup := strings.CutPrefix(entry.Name(), prefix)
		pid, _, _ := strings.Cut(name, "-")
		if _, err := os.Stat(filepath.Join("/proc", pid)); isGroup && errors.Is(err, fs.ErrNotExist) {
			Group(filepath.Join(own, entry.Name())).isRemoved()
		}
	}
}

// ownFolder returns the folder of this process's group, or "" if the folder is not visible.
func ownFolder() string {
	text, _ := os.ReadFile("/proc/self/cgroup")
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	dir := folderOf(string(text), string(mounts))
	if dir == "" || !slices.Contains(read(dir), os.Getpid()) {
		return ""
	}
	return dir
}

// folderOf finds the folder for a process's /proc/PID/cgroup in a mountinfo, as described in proc_pid_mountinfo(5).
func folderOf(cgroups, mounts string) string {
	_, path, isIn := strings.Cut("\n"+cgroups, "\n0::")
	path, _, _ = strings.Cut(path, "\n")
	if !isIn || path != filepath.Clean(path) { // an unclean path is above the root of this process's namespace
		return ""
	}
	for line := range strings.Lines(mounts) {
		mount, kind, _ := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if len(fields) < 5 || !strings.HasPrefix(kind, "cgroup2 ") {
			continue
		}
		below, err := filepath.Rel(fields[3], path)
		if err == nil && filepath.IsLocal(below) {
			return filepath.Join(fields[4], below)
		}
	}
	return ""
}

// read returns the processes of one folder.
func read(dir string) (pids []int) {
	text, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs")) // the folder may be removed meanwhile
	for field := range bytes.FieldsSeq(text) {
		if pid, err := strconv.Atoi(string(field)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Members returns the processes of the group and of the groups below it.
func (g Group) Members() (pids []int) {
	for _, dir := range g.folders() {
		pids = append(pids, read(dir)...)
	}
	return pids
}

// folders returns the folders of the group and, after that, of the groups below.
func (g Group) folders() (dirs []string) {
	if g == "" {
		return nil
	}
	_ = filepath.WalkDir(string(g), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	return dirs
}

// Kill kills all members, also those of other users, without missing any process forked meanwhile.
func (g Group) Kill() {
	if g != "" {
		_ = os.WriteFile(filepath.Join(string(g), "cgroup.kill"), []byte("1"), 0) // the folder may be removed meanwhile
	}
}

// maxRemoval bounds how often Remove tries again, as long as processes are forked.
const maxRemoval = time.Second

// Remove deletes the group and moves living members to the group above. If a member created a group of its own, both groups
// remain; another zkr that created the inner group deletes both when it ends.
func (g Group) Remove() {
	if g == "" {
		return
	}
	for began := time.Now(); time.Since(began) < maxRemoval && !g.isRemoved(); {
		for _, pid := range read(string(g)) {
			_ = os.WriteFile(filepath.Join(filepath.Dir(string(g)), "cgroup.procs"), []byte(strconv.Itoa(pid)), 0) // the process may be dead
		}
	}
	for dir := filepath.Dir(string(g)); strings.HasPrefix(filepath.Base(dir), prefix); dir = filepath.Dir(dir) {
		if os.Remove(dir) != nil {
			return
		}
	}
}

// isRemoved removes the folders without living members, and reports whether the group's own folder was removed.
func (g Group) isRemoved() bool {
	for _, dir := range slices.Backward(g.folders()) {
		if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) && dir == string(g) {
			return false
		}
	}
	return true
}
