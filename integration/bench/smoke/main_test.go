package smoke_test

import (
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/zkrecipes/zkrecipes/integration/bench/load"
	"github.com/zkrecipes/zkrecipes/integration/bench/peer"
	"github.com/zkrecipes/zkrecipes/integration/bench/runner"
	"github.com/zkrecipes/zkrecipes/integration/bench/server"
)

// TestMain makes the test binary a process under load, or the server, if it was started in that role.
func TestMain(m *testing.M) {
	var err error
	switch role := load.Role(); {
	case role == nil:
		goleak.VerifyTestMain(m)
		return
	case role[0] == runner.RoleWorker:
		err = load.Serve(os.Stdin, os.Stdout, peer.OnZooKeeper(), role[1])
	case role[0] == server.RoleZKTest:
		err = server.ServeZKTest()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
