package inspect_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit/testclient"
	"github.com/zkrecipes/zkrecipes/recipes/inspect"
	"github.com/zkrecipes/zkrecipes/recipes/zktest"
)

// BenchmarkWalk has 100 locks with 10 contenders each read over the loopback.
func BenchmarkWalk(b *testing.B) {
	server := zktest.NewServer(b)
	session := server.OpenSession(time.Hour)
	for i := range 100 {
		for k := range 10 {
			server.Seed(zktest.Znode{Path: fmt.Sprintf("/locks/%03d/a-lock-%010d", i, k), Session: session})
		}
	}
	client := testclient.Dial(b, []string{server.Addr()})
	requests := server.Observe()
	defer requests.Stop()
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		for _, err := range inspect.Walk(b.Context(), client, "/locks") {
			require.NoError(b, err)
			n++
		}
	}
	b.ReportMetric(float64(requests.Count())/float64(max(1, n))*100, "requests/op")
}
