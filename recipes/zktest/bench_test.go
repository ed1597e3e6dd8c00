package zktest_test

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// An op is a create and a delete; several connections are at it.
func BenchmarkCreateDelete(b *testing.B) {
	srv := zktest.NewServer(b)
	b.SetParallelism(4)
	b.RunParallel(func(pb *testing.PB) {
		conn, _, err := zk.Connect([]string{srv.Addr()}, 4*time.Second, zk.WithLogInfo(false))
		if err != nil {
			b.Error(err)
			return
		}
		defer conn.Close()
		for pb.Next() {
			path, err := conn.Create("/x-", nil, zk.FlagSequence, all)
			if err == nil {
				err = conn.Delete(path, -1)
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
}
