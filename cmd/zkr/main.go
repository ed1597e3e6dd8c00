// Zkr guards commands with locks and elections in ZooKeeper, and shows who holds them: see README.md.
package main

import (
	"os"
	"runtime"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/cli"
	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/watchdog"
)

func main() {
	if watchdog.IsWatchdog(os.Args) {
		os.Exit(watchdog.Main())
	}
	// The kernel kills a child with the thread that has started it: see package child.
	runtime.LockOSThread()
	os.Exit(cli.Main(os.Args[1:]))
}
