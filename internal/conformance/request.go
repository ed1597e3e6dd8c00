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

// encode writes the request's fields after its header.
func (r *Runner) encode(e *proto.Encoder, s Step) error {
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
		e.String(path).Int32(int32(version))
	case "exists", "getData", "getChildren", "getChildren2":
		e.String(path).Bool(s.has("watch"))
	case "setData":
		e.String(path).Buffer(data(s)).Int32(int32(version))
	case "getACL", "sync":
		e.String(path)
	case "setACL":
		if err := encodeACL(e.String(path), s); err != nil {
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
		e.Int32(0).String(s.Args[0].Key).Buffer([]byte(s.Args[0].Value))
	case "setWatches", "setWatches2":
		zxid, err := r.zxid(s.get("zxid"))
		if err != nil {
			return err
		}
		e.Int64(zxid).Strings(s.all("data")).Strings(s.all("exist")).Strings(s.all("child"))
		if s.Op == "setWatches2" {
			e.Strings(s.all("persistent")).Strings(s.all("recursive"))
		}
	case "addWatch", "checkWatches", "removeWatches":
		return encodeWatch(e.String(path), s)
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
func encodeWatch(e *proto.Encoder, s Step) error {
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

func (r *Runner) encodeCreate(e *proto.Encoder, s Step, path string) error {
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
	if err := encodeACL(e.String(path).Buffer(data(s)), s); err != nil {
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

func (r *Runner) encodeMulti(e *proto.Encoder, parts []Step) error {
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
func encodeACL(e *proto.Encoder, s Step) error {
	entries := s.all("acl")
	switch {
	case s.has("noacl"):
		e.Int32(-1)
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
	e.ACL(list)
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
