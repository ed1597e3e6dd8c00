package chaos

import "github.com/zkrecipes/zkrecipes/internal/proto"

// Refusal is a transaction that the leader refused because it checked a deleted znode, as the servers' logs show.
// They don't name the znode.
type Refusal struct {
	Session int64 // whose transaction it was
	At      int64 // milliseconds of the servers' wall clock
}

// A refused operation is in the log as an operation of this type, with its error as the body.
const (
	opError = -1
	noNode  = -101
)

func refusals(all []txn) (told []Refusal) {
	for _, t := range all {
		if t.op == proto.OpMulti && isRefused(proto.NewDecoder(t.body)) {
			told = append(told, Refusal{t.session, t.at})
		}
	}
	return told
}

// isRefused reports whether an operation of a transaction failed for want of its znode.
func isRefused(multi *proto.Decoder) bool {
	for n := multi.Int32(); n > 0 && multi.Err() == nil; n-- {
		op, body := multi.Int32(), multi.Buffer()
		if op == opError && len(body) == 4 && proto.NewDecoder(body).Int32() == noNode {
			return true
		}
	}
	return false
}
