package load

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// envRole holds the role of a program that starts itself again, one word per line.
const envRole = "ZKRECIPES_BENCH_ROLE"

// Self returns the command that starts this program again in a role.
func Self(ctx context.Context, role ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("load: %w", err)
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), envRole+"="+strings.Join(role, "\n"))
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// Role returns the role of this process, or nil if a user started it.
func Role() []string {
	role := os.Getenv(envRole)
	if role == "" {
		return nil
	}
	return strings.Split(role, "\n")
}
