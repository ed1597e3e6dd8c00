//go:build unix

package logins

import "syscall"

// ownGroup starts a program in a process group of its own.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// endGroup ends a program and its children.
func endGroup(pid int) { _ = syscall.Kill(-pid, syscall.SIGKILL) }
