package image

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed build.sh clients.sh suite.sh Dockerfile entrypoint.sh zoo.cfg
var files embed.FS

// Debian suites with a ZooKeeper.
const (
	Oldest = "bookworm" // ZooKeeper 3.8.0
	Newest = "trixie"   // ZooKeeper 3.9.3
)

// Build is BuildSuite with the suite that the environment variable ZK names, or else Oldest.
func Build(ctx context.Context, progress io.Writer) (string, error) {
	return BuildSuite(ctx, "", progress)
}

// BuildSuite runs build.sh for a Debian suite and returns the tag of the image, which is built unless it exists. The
// script's progress is written to progress. Building an image takes some minutes, most of them for the download.
func BuildSuite(ctx context.Context, suite string, progress io.Writer) (string, error) {
	return run(ctx, "build.sh", suite, progress)
}

// Clients returns the folder with the Curator and the kazoo of the suite that the environment variable ZK names, as clients.sh
// makes it, and "" if that is [Oldest], whose clients are expected on the machine.
func Clients(ctx context.Context, progress io.Writer) (string, error) {
	suite := os.Getenv("ZK")
	if suite == "" || suite == Oldest {
		return "", nil
	}
	return run(ctx, "clients.sh", suite, progress)
}

// run runs a script, and returns its output.
func run(ctx context.Context, script, suite string, progress io.Writer) (string, error) {
	dir, err := os.MkdirTemp("", "zkrecipes-image-")
	if err != nil {
		return "", fmt.Errorf("image: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, files); err != nil {
		return "", fmt.Errorf("image: unpack: %w", err)
	}
	cmd := exec.CommandContext(ctx, "sh", filepath.Join(dir, script))
	if suite != "" {
		cmd.Args = append(cmd.Args, suite)
	}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, progress
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("image: %s: %w", script, err)
	}
	return string(bytes.TrimSpace(out.Bytes())), nil
}
