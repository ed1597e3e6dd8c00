//go:build unix

package logins

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
)

// folder is a folder of a test, and the programs that run there.
type folder struct {
	testing.TB
	dir string
	env []string // of programs, besides that of the test
}

// Path returns the path of a file in the folder.
func (f *folder) Path(name string) string { return filepath.Join(f.dir, name) }

func (f *folder) write(name, text string) {
	f.Helper()
	require.NoError(f, os.WriteFile(f.Path(name), []byte(text), 0o600))
}

// start starts a program, which is ended at the end of the test at the latest.
func (f *folder) start(args ...string) (stop func()) {
	f.Helper()
	cmd := exec.Command(args[0], args[1:]...) //nolint:noctx // ended by stop
	cmd.Env = append(os.Environ(), f.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that its children end with it
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(f, cmd.Start())
	stop = sync.OnceFunc(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		if f.Failed() {
			f.Logf("%v:\n%s", args, out.String())
		}
	})
	f.Cleanup(stop)
	return stop
}

func (f *folder) awaitPort(port int) {
	f.Helper()
	testkit.Eventually(f, func() bool {
		conn, err := net.Dial("tcp", fmt.Sprint("127.0.0.1:", port))
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}, fmt.Sprint("a server at port ", port))
}

func (f *folder) freePort() int {
	f.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(f, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port
}

// startZooKeeper starts a real ZooKeeper that demands a login with the modules of a JAAS section, and returns its address.
func (f *folder) startZooKeeper(modules string, flags ...string) string {
	f.Helper()
	port := f.freePort()
	f.write("jaas.conf", fmt.Sprintf("Server {\n%s\n};\n", modules))
	f.write("zoo.cfg", fmt.Sprintf("tickTime=500\ndataDir=%s/data\nclientPort=%d\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxSessionTimeout=60000\n"+
		"authProvider.1=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n", f.dir, port))
	jars := "/usr/share/java/"
	args := append([]string{
		"java", "-Xmx128m", "-XX:+UseSerialGC", "-Dzookeeper.forceSync=no", "-Dzookeeper.sessionRequireClientSASLAuth=true",
		"-Djava.security.auth.login.config=" + f.Path("jaas.conf"),
	}, flags...)
	f.start(append(args, "-cp", jars+"zookeeper.jar:"+jars+"slf4j-simple.jar", "org.apache.zookeeper.server.quorum.QuorumPeerMain", f.Path("zoo.cfg"))...)
	f.awaitPort(port)
	return fmt.Sprint("localhost:", port)
}

// StartDigest starts a real ZooKeeper whose only user, ann, logs in with DIGEST-MD5 and the password "s:ecret". It returns the address.
func StartDigest(tb testing.TB) string {
	tb.Helper()
	f := &folder{TB: tb, dir: tb.TempDir()}
	return f.startZooKeeper(`org.apache.zookeeper.server.auth.DigestLoginModule required user_ann="s:ecret";`)
}
