package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReadConfig(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "zoo.cfg")
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("zoo.cfg", "tickTime=500\nclientPort=10007\ndataDir="+dir+"\n")
	alone, err := readConfig(file)
	require.NoError(t, err)
	require.Equal(t, config{Ensemble: filepath.Dir(dir), Servers: 1, Tick: 500 * time.Millisecond, port: "10007"}, alone)

	write("zoo.cfg", "tickTime=2000\nclientPort=20010\ndataDir="+dir+"\nserver.2=b:1:2\nserver.1=a:1:2\nserver.3=c:1:2\n")
	write("myid", "3\n")
	write("jaas.conf", `Server { user_super="pw" user_ann="s p"; };`)
	third, err := readConfig(file)
	require.NoError(t, err)
	require.Equal(t, 2, third.Index)
	require.Equal(t, 3, third.Servers)
	require.Equal(t, map[string]string{"super": "pw", "ann": "s p"}, third.Users)
	require.NotEqual(t, alone.Ensemble, third.Ensemble)
	write("myid", "4")
	_, err = readConfig(file)
	require.ErrorContains(t, err, "no server 4")
}

func TestJudge(t *testing.T) {
	s := suite{name: "s", racy: map[string]string{"r": "a race"}, out: map[string]string{"a": "by design", "b": "by design", "c": "by design", "d": "by design"}}
	err := s.judge(results{"a": failed, "b": passed, "d": skipped, "e": failed, "f": passed, "g": skipped, "r": failed})
	require.ErrorContains(t, err, "s: b is listed as out (by design), and passed")
	require.ErrorContains(t, err, "s: c is listed as out (by design), and there is no such test")
	require.ErrorContains(t, err, "s: d is listed as out (by design), and skipped")
	require.ErrorContains(t, err, "s: e failed")
	require.NotContains(t, err.Error(), "s: a")
	require.NotContains(t, err.Error(), "s: r")
	require.NoError(t, s.judge(results{"a": failed, "b": failed, "c": failed, "d": failed, "f": passed}))
}
