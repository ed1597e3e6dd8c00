package chaos

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/integration/ensemble"
	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// Life is the life of a znode, according to the servers' transaction logs.
type Life struct {
	Path    string
	Token   int64 // its czxid
	Created int64 // milliseconds of the servers' wall clock
	Gone    int64 // 0: never
	GoneBy  int64 // the transaction of its deletion
	End     End
	Session int64 // its owner
	Heard   int64 // when its owner got the lock, on the monotonic clock; 0: never
}

// End is the way in which a znode ended.
type End string

// The ends.
const (
	Stays   End = ""
	Deleted End = "deleted"     // by its own session
	Robbed  End = "robbed"      // by another one
	Closed  End = "closed"      // with its session, closed by a client that joined it
	Expired End = "expired"     // as the leader gave its session up
	Never   End = "never there" // by the logs of the majority
)

// txn is one entry of a transaction log.
type txn struct {
	session, zxid, at int64
	request, op       int32 // the request's number in its session; 0: the leader's own
	body              []byte
}

// The log format is FileTxnLog's: a file header, and for each transaction its checksum, its length, a TxnHeader, the
// record, and an end mark. Preallocated zeros, or a torn entry of a killed server, end a file.
const (
	logMagic      = 0x5a4b4c47 // "ZKLG"
	logHeader     = 16
	logEndOfEntry = 'B'
)

// readLog returns the transactions of one log file.
func readLog(file []byte) (all []txn, err error) {
	if len(file) < logHeader {
		return nil, nil // its server was killed before it wrote the header
	}
	if binary.BigEndian.Uint32(file) != logMagic {
		return nil, errors.New("chaos: no transaction log")
	}
	for file = file[logHeader:]; len(file) >= 12; {
		length := int(binary.BigEndian.Uint32(file[8:12]))
		if length == 0 || len(file) < 12+length+1 || file[12+length] != logEndOfEntry {
			break
		}
		d := proto.NewDecoder(file[12 : 12+length])
		t := txn{session: d.Int64(), request: d.Int32()}
		t.zxid, t.at, t.op = d.Int64(), d.Int64(), d.Int32()
		if d.Err() != nil {
			return nil, fmt.Errorf("chaos: transaction log: %w", d.Err())
		}
		t.body = file[12+length-d.Len() : 12+length]
		all = append(all, t)
		file = file[12+length+1:]
	}
	return all, nil
}

// ServerLogs are the logs of one server.
type ServerLogs struct {
	Transactions map[string][]byte // the files of its transaction log by name, compressed with gzip
	Console      string
}

// fetchLogs copies the servers' transaction logs from a directory.
func fetchLogs(ctx context.Context, servers *ensemble.Ensemble, dir string) ([]ServerLogs, error) {
	all := make([]ServerLogs, len(servers.Servers()))
	for i := range all {
		console, err := servers.Logs(ctx, i)
		if err != nil {
			return nil, err
		}
		all[i] = ServerLogs{Transactions: make(map[string][]byte), Console: console}
		names, err := servers.Exec(ctx, i, "sh", "-c", "ls "+dir+"/log.*")
		if err != nil {
			return nil, err
		}
		for name := range strings.FieldsSeq(names) {
			packed, err := servers.Exec(ctx, i, "sh", "-c", "gzip -1c "+name+" | base64 -w0")
			if err != nil {
				return nil, err
			}
			zipped, err := base64.StdEncoding.DecodeString(strings.TrimSpace(packed))
			if err != nil {
				return nil, fmt.Errorf("chaos: %s: %w", name, err)
			}
			all[i].Transactions[path.Base(name)] = zipped
		}
	}
	return all, nil
}

// committed collects the committed transactions, which are in the logs of a majority. A transaction logged by a
// single server was never answered, and is still in that log if the server later got a snapshot. A server that got a
// snapshot lacks some transactions. See also withoutUndone.
func committed(logs []ServerLogs) ([]txn, error) {
	seen := make(map[int64]int)
	byZxid := make(map[int64]txn)
	for _, server := range logs {
		found, err := server.read()
		if err != nil {
			return nil, err
		}
		for _, t := range found {
			seen[t.zxid]++
			byZxid[t.zxid] = t
		}
	}
	var all []txn
	for zxid, t := range byZxid {
		if seen[zxid] <= len(logs)/2 {
			continue
		}
		if _, err := partsOf(t); err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	slices.SortFunc(all, func(a, b txn) int { return cmp.Compare(a.zxid, b.zxid) })
	return withoutUndone(all), nil
}

// read returns the log of one server, each transaction once.
func (s ServerLogs) read() (all []txn, err error) {
	for name, zipped := range s.Transactions {
		r, err := gzip.NewReader(bytes.NewReader(zipped))
		if err != nil {
			return nil, fmt.Errorf("chaos: %s: %w", name, err)
		}
		file, err := io.ReadAll(r)
		if err != nil {
			return nil, fmt.Errorf("chaos: %s: %w", name, err)
		}
		found, err := readLog(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, found...)
	}
	slices.SortStableFunc(all, func(a, b txn) int { return cmp.Compare(a.zxid, b.zxid) })
	return slices.CompactFunc(all, func(a, b txn) bool { return a.zxid == b.zxid }), nil
}

// lives follows the ephemeral znodes through the logs.
func lives(all []txn) []*Life {
	there := make(map[string]*Life)
	var told []*Life
	for _, t := range parts(all) {
		switch t.op {
		case proto.OpCreate, proto.OpCreate2:
			d := proto.NewDecoder(t.body)
			path := d.String()
			d.Buffer()
			d.ACL()
			if ephemeral := d.Bool(); d.Err() == nil && ephemeral {
				there[path] = &Life{Path: path, Token: t.zxid, Created: t.at, Session: t.session}
				told = append(told, there[path])
			}
		case proto.OpDelete:
			path := proto.NewDecoder(t.body).String()
			if n, ok := there[path]; ok {
				n.Gone, n.GoneBy, n.End = t.at, t.zxid, Deleted
				if n.Session != t.session {
					n.End = Robbed
				}
				delete(there, path)
			}
		case proto.OpCloseSession:
			endSession(there, t)
		}
	}
	return told
}

// endSession ends the znodes of a session that a transaction closes.
func endSession(there map[string]*Life, t txn) {
	for path, n := range there {
		if n.Session != t.session {
			continue
		}
		n.Gone, n.GoneBy, n.End = t.at, t.zxid, Closed
		if t.request == 0 {
			n.End = Expired
		}
		delete(there, path)
	}
}
