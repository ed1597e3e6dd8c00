package chaos

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// A follower logs what a leader has that the follower lacks, before the quorum has established that leader. If it never does, and the
// follower leads next, the follower may undo those transactions: it has not applied them (seen with ZooKeeper 3.8.0, whose log calls the
// acknowledgment of such a leader "from a different epoch"). So a transaction that nobody was told about may be in two of three logs.

// withoutUndone leaves out the ends of epochs that a new leader has undone. That shows in a number that a directory gives twice. From the first
// such create on, the leader has undone the rest of the epoch. What it may have undone before that create stays.
func withoutUndone(all []txn) []txn {
	for zxid := repeatedNumber(all); zxid != 0; zxid = repeatedNumber(all) {
		all = slices.DeleteFunc(all, func(t txn) bool { return t.zxid >= zxid && t.zxid>>32 == zxid>>32 })
	}
	return all
}

// repeatedNumber returns the first create whose number a later create in the same directory has again, 0 if there is none.
func repeatedNumber(all []txn) (zxid int64) {
	given := make(map[string]map[string]int64) // zxids by directory and number
	for _, t := range parts(all) {
		name := proto.NewDecoder(t.body).String() // the first field of all these
		switch t.op {
		case proto.OpCreate, proto.OpCreate2:
			dir, number := path.Dir(name), numberOf(name)
			if number == "" {
				continue
			}
			if earlier, isRepeated := given[dir][number]; isRepeated && (zxid == 0 || earlier < zxid) {
				zxid = earlier
			}
			if given[dir] == nil {
				given[dir] = make(map[string]int64)
			}
			given[dir][number] = t.zxid
			fallthrough
		case proto.OpCreateContainer, proto.OpDelete, opDeleteContainer:
			delete(given, name) // a new directory counts from 0
		}
	}
	return zxid
}

const opDeleteContainer = 20

// numberOf returns the number that the server has appended to a name, "" if there is none. Readers under a writer have the number
// of the writer's znode, by their own choice.
func numberOf(name string) string {
	const digits = 10
	number := name[max(0, len(name)-digits):]
	if len(number) < digits || strings.Trim(number, "0123456789") != "" || strings.Contains(name, "__READ__") {
		return ""
	}
	return number
}

// parts returns the transactions, with the operations of a transaction of several in its place.
func parts(all []txn) (single []txn) {
	for _, t := range all {
		operations, _ := partsOf(t) // committed has checked them
		single = append(single, operations...)
	}
	return single
}

// partsOf returns the operations of a transaction, none if it was refused. The log of a refused transaction has the operations ahead of the
// refused one as they were sent.
func partsOf(t txn) (single []txn, err error) {
	if t.op != proto.OpMulti {
		return []txn{t}, nil
	}
	multi, isRefused := proto.NewDecoder(t.body), false
	for n := multi.Int32(); n > 0 && multi.Err() == nil; n-- {
		part := t
		part.op, part.body = multi.Int32(), multi.Buffer()
		single, isRefused = append(single, part), isRefused || part.op == opError
	}
	switch {
	case multi.Err() != nil:
		return nil, fmt.Errorf("chaos: transaction %d: %w", t.zxid, multi.Err())
	case isRefused:
		return nil, nil
	default:
		return single, nil
	}
}
