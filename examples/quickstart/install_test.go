//go:build linux

package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// The commands of Install work one after the other in a new module, with the program of the README. What differs: the repository is this
// one, the server listens on another port, and neither modules nor checksums are downloaded.
func TestInstall(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?ms)^## Install$.*?^```sh\n(.*?)^```$").FindStringSubmatch(string(readme))
	require.NotNil(t, block)
	commands := strings.Split(strings.TrimSpace(block[1]), "\n")
	n := len(commands)
	install, serve, run := commands[:n-2], commands[n-2], commands[n-1]
	repository, err := filepath.Abs("../..")
	require.NoError(t, err)
	module := filepath.Join(t.TempDir(), "shop")
	require.NoError(t, os.Mkdir(module, 0o700))
	shell := func(script string) *exec.Cmd {
		sh := exec.CommandContext(t.Context(), "sh", "-ec", script)
		sh.Dir = module
		sh.Env = append(os.Environ(), "GOPROXY=off", "GOSUMDB=off", "GOFLAGS=", "GOWORK=")
		return sh
	}
	output := func(script string) string {
		t.Helper()
		out, err := shell(script).CombinedOutput()
		require.NoError(t, err, string(out))
		return string(out)
	}

	program, err := os.ReadFile("main.go")
	require.NoError(t, err)
	output("go mod init example.com/shop")
	require.NoError(t, os.WriteFile(filepath.Join(module, "main.go"), program, 0o600))
	output(strings.Replace(strings.Join(install, "\n"), "https://github.com/zkrecipes/zkrecipes", repository, 1))

	server := shell(strings.Replace(serve, "zkr dev", "zkr dev --listen 127.0.0.1:0", 1))
	server.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // go run passes no signal on
	stdout, err := server.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	defer func() {
		require.NoError(t, syscall.Kill(-server.Process.Pid, syscall.SIGKILL))
		_ = server.Wait()
	}()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(t, err)
	_, address, found := strings.Cut(strings.TrimSpace(line), "=")
	require.True(t, found, line)
	there := strings.Replace(string(program), "127.0.0.1:2181", address, 1)
	require.NoError(t, os.WriteFile(filepath.Join(module, "main.go"), []byte(there), 0o600))
	require.Regexp(t, `locked; fencing token: \d+\n`, output(run))
}
