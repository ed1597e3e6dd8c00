package zkadmin

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestJavaRandomYieldsJavasNumbers(t *testing.T) {
	// The first nextInt() of new Random(0) and new Random(42), as any JVM prints them.
	require.Equal(t, int32(-1155484576), newJavaRandom(0).nextInt())
	require.Equal(t, int32(-1170105035), newJavaRandom(42).nextInt())
}

func TestJavaRandomFillsLowestByteFirst(t *testing.T) {
	b := make([]byte, 6)
	newJavaRandom(0).fill(b)
	// -1155484576 is BB20B460 and -723955400 is D4D95138.
	require.Equal(t, "60b420bb3851", hex.EncodeToString(b))
}
