package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// config has the settings that a member process reads from its zoo.cfg.
type config struct {
	Ensemble string // distinguishes the ensembles of a suite
	Index    int    // of the server within its ensemble
	Servers  int
	Tick     time.Duration
	Users    map[string]string // who may log in over SASL, with their passwords

	port string
}

// jaasUser is a user with a password in a jaas.conf.
var jaasUser = regexp.MustCompile(`user_(\w+)="([^"]*)"`)

// readConfig reads a zoo.cfg, the users in the jaas.conf beside it, and the number of the server in the file myid.
func readConfig(file string) (config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return config{}, err
	}
	fields, servers := map[string]string{}, []string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		if strings.HasPrefix(name, "server.") {
			servers = append(servers, name)
		}
		fields[name] = value
	}
	slices.Sort(servers)
	c := config{Servers: max(1, len(servers)), port: fields["clientPort"], Ensemble: filepath.Dir(filepath.Dir(file))}
	for _, name := range servers {
		c.Ensemble += " " + fields[name]
	}
	if jaas, err := os.ReadFile(filepath.Join(filepath.Dir(file), "jaas.conf")); err == nil {
		for _, user := range jaasUser.FindAllStringSubmatch(string(jaas), -1) {
			if c.Users == nil {
				c.Users = map[string]string{}
			}
			c.Users[user[1]] = user[2]
			c.Ensemble += " " + user[1]
		}
	}
	if len(servers) > 1 {
		id, err := os.ReadFile(filepath.Join(fields["dataDir"], "myid"))
		if err != nil {
			return config{}, err
		}
		if c.Index = slices.Index(servers, "server."+strings.TrimSpace(string(id))); c.Index < 0 {
			return config{}, fmt.Errorf("%s: no server %s", file, id)
		}
	}
	milliseconds, err := strconv.Atoi(fields["tickTime"])
	c.Tick = time.Duration(milliseconds) * time.Millisecond
	return c, err
}

// runMember serves the port in a configuration until ctx ends, or the coordinator.
func runMember(ctx context.Context, file, coordinator string) error {
	cfg, err := readConfig(file)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("", cfg.port))
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }()
	control, err := net.Dial("unix", coordinator)
	if err != nil {
		return err
	}
	defer func() { _ = control.Close() }()
	if err := json.NewEncoder(control).Encode(cfg); err != nil {
		return err
	}
	in := bufio.NewReader(control)
	address, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	address = strings.TrimSpace(address)
	if _, _, err := net.SplitHostPort(address); err != nil {
		return fmt.Errorf("coordinator: %s", address)
	}
	go accept(listener, address) // until the process ends
	ended := make(chan struct{})
	go func() { // until the process ends
		_, _ = io.Copy(io.Discard, in)
		close(ended)
	}()
	select {
	case <-ctx.Done():
	case <-ended:
	}
	return nil
}

func accept(listener net.Listener, address string) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go forward(conn, address) // until either side ends
	}
}

// forward joins a client and its server. It answers the words srvr and envi itself, in the format that the suites
// parse, with the date format of releases before 3.6.
func forward(client net.Conn, address string) {
	defer func() { _ = client.Close() }()
	in := bufio.NewReader(client)
	word, _ := in.Peek(4)
	if answer := words[string(word)]; answer != "" {
		_, _ = io.WriteString(client, answer)
		return
	}
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go func() {
		_, _ = io.Copy(server, in)
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, server)
}

// words are the answers of the member process itself.
var words = map[string]string{
	"srvr": "Zookeeper version: 3.8.0-zktest, built on 02/25/2022 08:49 UTC\nLatency min/avg/max: 0/0/0\nReceived: 1\nSent: 1\n" +
		"Connections: 1\nOutstanding: 0\nZxid: 0x1\nMode: follower\nNode count: 4\n",
	"envi": "Environment:\nzookeeper.version=3.8.0-zktest, built on 02/25/2022 08:49 UTC\n",
}
