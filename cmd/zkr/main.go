//go:build linux

// Zkr guards commands with locks and elections in ZooKeeper, and shows their holders. README.md describes its
// commands.
package main

import (
	"os"
	"runtime"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/cli"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/process"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/watchdog"
)

func main() {
	if watchdog.IsWatchdog(os.Args) {
		os.Exit(watchdog.Main())
	}
	// The kernel kills a child when the thread that started the child ends, as package child explains.
	runtime.LockOSThread()
	if os.Getpid() == 1 {
		process.ReapOrphans()
	}
	os.Exit(cli.Main(os.Args[1:]))
}
