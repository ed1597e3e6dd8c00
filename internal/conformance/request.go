package conformance

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

// opcode returns the operation code of a step.
func opcode(s Step) (int32, error) {
	switch s.Op {
	case "create":
		return proto.OpCreate, nil
	case "create2":
		return proto.OpCreate2, nil
	case "createContainer":
		return proto.OpCreateContainer, nil
	case "createTTL":
		return proto.OpCreateTTL, nil
	case "delete":
		return proto.OpDelete, nil
	case "exists":
		return proto.OpExists, nil
	case "getData":
		return proto.OpGetData, nil
	case "setData":
		return proto.OpSetData, nil
	case "getACL":
		return proto.OpGetACL, nil
	case "setACL":
		return proto.OpSetACL, nil
	case "getChildren":
		return proto.OpGetChildren, nil
	case "getChildren2":
		return proto.OpGetChildren2, nil
	case "sync":
		return proto.OpSync, nil
	case "check":
		return proto.OpCheck, nil
	case "multi", "checks":
		return proto.OpMulti, nil
	case "multiRead", "reads":
		return proto.OpMultiRead, nil
	case "auth":
		return proto.OpAuth, nil
	case "setWatches":
		return proto.OpSetWatches, nil
	case "setWatches2":
		return proto.OpSetWatches2, nil
	case "addWatch":
		return proto.OpAddWatch, nil
	case "checkWatches":
		return proto.OpCheckWatches, nil
	case "removeWatches":
		return proto.OpRemoveWatches, nil
	case "close":
		return proto.OpCloseSession, nil
	case "op":
		code, err := s.number("code", 0)
		return int32(code), err
	}
	return 0, fmt.Errorf("unknown operation %q", s.Op)
}

// fields writes the fields of a request. In place of one of the lengths it can write −1.
type fields struct {
	*proto.Encoder
	left int64 // the number of lengths up to the one to replace; below 1: none
}

// isNull counts a length. It writes −1 and returns true if that is the length to replace.
func (f *fields) isNull() bool {
	f.left--
	if f.left == 0 {
		f.Int32(-1)
	}
	return f.left == 0
}

func (f *fields) text(v string) {
	if !f.isNull() {
		f.String(v)
	}
}

func (f *fields) buffer(v []byte) {
	if !f.isNull() {
		f.Buffer(v)
	}
}

func (f *fields) texts(list []string) {
	if f.isNull() {
		return
	}
	f.Int32(int32(len(list)))
	for _, v := range list {
		f.text(v)
	}
}

func (f *fields) acl(list []zk.ACL) {
	if f.isNull() {
		return
	}
	f.Int32(int32(len(list)))
	for _, entry := range list {
		f.Int32(entry.Perms)
		f.text(entry.Scheme)
		f.text(entry.ID)
	}
}

// encode writes the request's fields after its header.
func (r *Runner) encode(e *fields, s Step) error {
	version, err := s.number("v", -1)
	if err != nil {
		return err
	}
	path, err := r.path(s)
	if err != nil {
		return err
	}
	switch s.Op {
	case "create", "create2", "createContainer", "createTTL":
		return r.encodeCreate(e, s, path)
	case "delete", "check":
		e.text(path)
		e.Int32(int32(version))
	case "exists", "getData", "getChildren", "getChildren2":
		e.text(path)
		e.Bool(s.has("watch"))
	case "setData":
		e.text(path)
		e.buffer(data(s))
		e.Int32(int32(version))
	case "getACL", "sync":
		e.text(path)
	case "setACL":
		e.text(path)
		if err := encodeACL(e, s); err != nil {
			return err
		}
		e.Int32(int32(version))
	case "multi", "multiRead":
		return r.encodeMulti(e, s.Parts)
	case "checks":
		return r.encodeMulti(e, checks(s))
	case "reads":
		return r.encodeMulti(e, reads(s))
	case "auth":
		e.Int32(0)
		e.text(s.Args[0].Key)
		e.buffer([]byte(s.Args[0].Value))
	case "setWatches", "setWatches2":
		zxid, err := r.zxid(s.get("zxid"))
		if err != nil {
			return err
		}
		e.Int64(zxid)
		kinds := []string{"data", "exist", "child"}
		if s.Op == "setWatches2" {
			kinds = append(kinds, "persistent", "recursive")
		}
		for _, kind := range kinds {
			e.texts(s.all(kind))
		}
	case "addWatch", "checkWatches", "removeWatches":
		e.text(path)
		return encodeWatch(e, s)
	case "op":
		body, err := hex.DecodeString(s.get("hex"))
		if err != nil {
			return err
		}
		e.Raw(body)
	}
	return nil
}

// encodeWatch writes the kind of watch: "mode=0" or "type=3" for numbers, or a word.
func encodeWatch(e *fields, s Step) error {
	key, words := "type", map[string]int64{
		"child": proto.WatchersOfChildren, "data": proto.WatchersOfData, "any": proto.WatchersOfAny,
	}
	if s.Op == "addWatch" {
		key, words = "mode", map[string]int64{"persistent": proto.WatchPersistent, "recursive": proto.WatchRecursive}
	}
	n := int64(0)
	for word, value := range words {
		if s.has(word) {
			n = value
		}
	}
	n, err := s.number(key, n)
	e.Int32(int32(n))
	return err
}

func (r *Runner) encodeCreate(e *fields, s Step, path string) error {
	flags := map[string]int64{"createContainer": proto.FlagContainer, "createTTL": proto.FlagTTL}[s.Op]
	for word, flag := range map[string]int64{
		"ephemeral": proto.FlagEphemeral, "sequential": proto.FlagSequential,
		"container": proto.FlagContainer,
	} {
		if s.has(word) {
			flags |= flag
		}
	}
	if s.Op == "createTTL" && s.has("sequential") {
		flags = proto.FlagTTLSequential
	}
	flags, err := s.number("flags", flags)
	if err != nil {
		return err
	}
	e.text(path)
	e.buffer(data(s))
	if err := encodeACL(e, s); err != nil {
		return err
	}
	e.Int32(int32(flags))
	if s.Op == "createTTL" {
		ttl, err := s.number("ttl", 0)
		if err != nil {
			return err
		}
		e.Int64(ttl)
	}
	return nil
}

func (r *Runner) encodeMulti(e *fields, parts []Step) error {
	for _, part := range parts {
		op, err := opcode(part)
		if err != nil {
			return err
		}
		e.Int32(op).Bool(false).Int32(-1)
		if err := r.encode(e, part); err != nil {
			return err
		}
	}
	e.Int32(-1).Bool(true).Int32(-1)
	return nil
}

// data returns the data of a step: an empty buffer unless the step says "data=", "null", or
// "size=" for a number of bytes.
func data(s Step) []byte {
	if s.has("null") {
		return nil
	}
	if size, err := s.number("size", 0); err == nil && size > 0 {
		return bytes.Repeat([]byte("x"), int(size))
	}
	return []byte(s.get("data"))
}

// encodeACL writes a step's ACL, "acl=world:anyone:cdrwa" for each entry; without an entry
// the znode is open to all, "noacl" is a null list, "emptyacl" an empty list.
func encodeACL(e *fields, s Step) error {
	entries := s.all("acl")
	switch {
	case s.has("noacl"):
		e.buffer(nil)
		return nil
	case s.has("emptyacl"):
	case len(entries) == 0:
		entries = []string{"world:anyone:cdrwa"}
	}
	list := make([]zk.ACL, len(entries))
	for i, entry := range entries {
		scheme, rest, _ := strings.Cut(entry, ":")
		end := strings.LastIndex(rest, ":")
		if end < 0 {
			return fmt.Errorf("acl %q", entry)
		}
		perms, err := parsePerms(rest[end+1:])
		if err != nil {
			return err
		}
		list[i] = zk.ACL{Perms: perms, Scheme: scheme, ID: rest[:end]}
	}
	e.acl(list)
	return nil
}

// permLetters are the permissions from bit 0 on, in ZooKeeper's own letters.
const permLetters = "rwcda"

func parsePerms(text string) (int32, error) {
	if n, err := strconv.ParseInt(text, 0, 32); err == nil {
		return int32(n), nil
	}
	perms := int32(0)
	for _, letter := range text {
		bit := strings.IndexRune(permLetters, letter)
		if bit < 0 {
			return 0, fmt.Errorf("permissions %q", text)
		}
		perms |= 1 << bit
	}
	return perms, nil
}

func formatPerms(perms int32) string {
	if perms&^31 != 0 {
		return strconv.Itoa(int(perms))
	}
	var letters []rune
	for bit, letter := range permLetters {
		if perms&(1<<bit) != 0 {
			letters = append(letters, letter)
		}
	}
	return string(letters)
}
