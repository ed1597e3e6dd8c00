//go:build !linux

// Zkr shows the holders of locks in ZooKeeper, and guards commands with locks on Linux. README.md describes its
// commands.
package main

import (
	"os"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
