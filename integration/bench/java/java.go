// Package java runs Apache Curator under load. Worker.java follows the commands of package load.
//
// It needs a JDK and Debian's libcurator-recipes-java.
package java

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// jars is Debian's folder of libraries. Their manifests name their dependencies, except a logger.
const jars = "/usr/share/java/curator-recipes.jar:/usr/share/java/slf4j-nop.jar"

//go:embed *.java
var sources embed.FS

// Compile puts the classes into a folder, and returns the command that starts a worker in a JVM with such flags.
func Compile(ctx context.Context, dir string) (command func(flags ...string) *exec.Cmd, err error) {
	if err := os.CopyFS(dir, sources); err != nil {
		return nil, fmt.Errorf("java: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.java"))
	if err != nil {
		return nil, fmt.Errorf("java: %w", err)
	}
	args := append([]string{"-implicit:none", "-d", dir, "-cp", jars}, files...)
	if out, err := exec.CommandContext(ctx, "javac", args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("java: javac: %w\n%s", err, out)
	}
	return func(flags ...string) *exec.Cmd {
		return exec.CommandContext(ctx, "java", slices.Concat(flags, []string{"-cp", dir + ":" + jars, "Worker"})...)
	}, nil
}

// Needs names what is missing on this machine, or returns nil.
func Needs() error {
	_, javac := exec.LookPath("javac")
	_, java := exec.LookPath("java")
	_, curator := os.Stat("/usr/share/java/curator-recipes.jar")
	if err := errors.Join(javac, java, curator); err != nil {
		return fmt.Errorf("java: install default-jdk-headless and libcurator-recipes-java: %w", err)
	}
	return nil
}
