// Package clients finds the addresses of clients by their sessions, which only the servers know.
//
// A session id is part of a credential, so no text of this package contains one.
package clients

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/doctor"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Table maps each session connected to one of the servers to the address of its client.
type Table struct {
	addresses map[int64]string
	refusals  []string
}

// Find asks all servers for their connections: by the four-letter word cons, and if a server does not answer that,
// by its admin server.
func Find(ctx context.Context, servers []string, settings *tls.Config, adminPort int) Table {
	t := Table{addresses: map[int64]string{}}
	var (
		asking sync.WaitGroup
		mu     sync.Mutex // protects t
	)
	for _, address := range servers {
		asking.Go(func() { // each question is bounded
			found, err := connectionsOf(ctx, address, settings, adminPort)
			mu.Lock()
			defer mu.Unlock()
			maps.Copy(t.addresses, found)
			if err != nil {
				t.refusals = append(t.refusals, fmt.Sprintf("%s tells no connections: %v", address, err))
			}
		})
	}
	asking.Wait()
	return t
}

// Of returns the address of a session's client, "" if it is not known.
func (t Table) Of(session int64) string { return t.addresses[session] }

// Refusals names the servers that did not answer, with the reasons.
func (t Table) Refusals() []string { return t.refusals }

func connectionsOf(ctx context.Context, address string, settings *tls.Config, adminPort int) (map[int64]string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = address, "2181"
	}
	answer, err := doctor.FourLetterWord(ctx, net.JoinHostPort(host, port), settings, "cons")
	if found, isAnswer := parseCons(answer); isAnswer {
		return found, nil
	}
	if err != nil {
		return nil, err
	}
	found, err := fromAdmin(ctx, net.JoinHostPort(host, strconv.Itoa(adminPort)))
	if err != nil {
		return nil, fmt.Errorf("add cons to its 4lw.commands.whitelist, or give the port of its admin server by --admin-port (%w)", err)
	}
	return found, nil
}

// consLine is a connection in the answer to cons: " /10.0.0.5:43210[1](queued=0,…,sid=0x1000a,…)".
var consLine = regexp.MustCompile(`^\s*/?(\S+:\d+)\[[0-9a-f]+\]\((.*)\)\s*$`)

var consSession = regexp.MustCompile(`(?:^|,)sid=0x([0-9a-f]+)`)

// parseCons reports false for other answers, such as the refusal of a word that is not in the whitelist.
func parseCons(answer string) (found map[int64]string, isAnswer bool) {
	found = map[int64]string{}
	for lines := bufio.NewScanner(strings.NewReader(answer)); lines.Scan(); {
		line := consLine.FindStringSubmatch(lines.Text())
		if line == nil {
			continue
		}
		isAnswer = true // an answer always includes the connection that asks
		session := consSession.FindStringSubmatch(line[2])
		if session == nil {
			continue
		}
		if id, err := strconv.ParseUint(session[1], 16, 64); err == nil {
			found[int64(id)] = zkutil.Printable(line[1]) //nolint:gosec // the id of a session is signed on the wire
		}
	}
	return found, isAnswer
}

// maxAnswer bounds what an admin server may answer.
const maxAnswer = 64 << 20

// fromAdmin asks an admin server.
func fromAdmin(ctx context.Context, address string) (map[int64]string, error) {
	ctx, cancel := context.WithTimeout(ctx, doctor.AskTime)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/commands/connections", nil)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DisableKeepAlives: true} // without the proxy of the environment, which is for other networks
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	type connection struct {
		Address string      `json:"remote_socket_address"`
		Session json.Number `json:"session_id"`
	}
	var answer struct {
		Plain  []connection `json:"connections"`
		Secure []connection `json:"secure_connections"`
	}
	if err := json.NewDecoder(io.LimitReader(response.Body, maxAnswer)).Decode(&answer); err != nil {
		return nil, fmt.Errorf("%s: %w", zkutil.Printable(response.Status), err)
	}
	found := map[int64]string{}
	for _, c := range append(answer.Plain, answer.Secure...) {
		if id, err := c.Session.Int64(); err == nil {
			found[id] = zkutil.Printable(strings.TrimPrefix(c.Address, "/"))
		}
	}
	return found, nil
}
