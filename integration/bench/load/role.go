package load

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// envRole says what a program that starts itself again is to be: words, one a line.
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

// Role returns the role of this process; nil for the one that was started by a user.
func Role() []string {
	role := os.Getenv(envRole)
	if role == "" {
		return nil
	}
	return strings.Split(role, "\n")
}
