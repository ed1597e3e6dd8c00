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

//go:embed build.sh Dockerfile entrypoint.sh zoo.cfg
var files embed.FS

// Build runs build.sh and returns the tag of the image, which it makes first unless it is there already. The script's
// progress goes to progress. Making the image takes about a minute.
func Build(ctx context.Context, progress io.Writer) (string, error) {
	dir, err := os.MkdirTemp("", "zkrecipes-image-")
	if err != nil {
		return "", fmt.Errorf("image: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, files); err != nil {
		return "", fmt.Errorf("image: unpack: %w", err)
	}
	cmd := exec.CommandContext(ctx, "sh", filepath.Join(dir, "build.sh"))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, progress
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("image: build.sh: %w", err)
	}
	return string(bytes.TrimSpace(out.Bytes())), nil
}
