package zkadmin

import "github.com/zkrecipes/zkrecipes/internal/proto"

// sessionSecret is the constant that a ZooKeeper server mixes into a session id to derive its password (superSecret
// in ZooKeeperServer.java).
const sessionSecret = 0xB3415C00

// sessionPassword returns the server's password for the session with this id.
func sessionPassword(id int64) []byte {
	password := make([]byte, proto.PasswordLength)
	newJavaRandom(id ^ sessionSecret).fill(password)
	return password
}

// javaRandom yields the numbers of java.util.Random, a 48-bit linear congruential generator, documented there bit by bit.
type javaRandom struct{ state uint64 }

const (
	lcgFactor = 0x5DEECE66D
	lcgTerm   = 0xB
	lcgMask   = 1<<48 - 1
)

func newJavaRandom(seed int64) *javaRandom {
	return &javaRandom{state: (uint64(seed) ^ lcgFactor) & lcgMask}
}

// nextInt is Random.nextInt(), the upper 32 of the 48 bits.
func (r *javaRandom) nextInt() int32 {
	r.state = (r.state*lcgFactor + lcgTerm) & lcgMask
	return int32(r.state >> 16)
}

// fill is Random.nextBytes: each number gives four bytes, lowest first.
func (r *javaRandom) fill(b []byte) {
	for i := 0; i < len(b); {
		n := r.nextInt()
		for range min(4, len(b)-i) {
			b[i] = byte(n)
			n >>= 8
			i++
		}
	}
}
