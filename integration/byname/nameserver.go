package byname

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// NameServer answers questions for addresses of IPv4 over UDP, on the loopback interface.
type NameServer struct {
	conn     *net.UDPConn
	work     sync.WaitGroup // the goroutine that answers; joined in Close
	isSilent atomic.Bool
	asked    atomic.Int64

	mu    sync.Mutex // protects what is below
	zones map[string][]netip.Addr
}

// StartNameServer returns a name server that knows no names.
func StartNameServer() (*NameServer, error) {
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("byname: %w", err)
	}
	s := &NameServer{conn: conn, zones: map[string][]netip.Addr{}}
	s.work.Go(s.serve) // ends when Close closes the socket
	return s, nil
}

// Addr returns the address of the name server.
func (s *NameServer) Addr() string { return s.conn.LocalAddr().String() }

// Set gives a name its addresses. Without addresses the name exists and has none.
func (s *NameServer) Set(name string, addresses ...netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.zones[strings.ToLower(name)] = addresses
}

// Silence makes the name server leave questions without an answer, or ends that.
func (s *NameServer) Silence(isSilent bool) { s.isSilent.Store(isSilent) }

// Asked returns the number of questions, answered or not.
func (s *NameServer) Asked() int64 { return s.asked.Load() }

// Close ends the name server. It may be called more than once.
func (s *NameServer) Close() {
	_ = s.conn.Close()
	s.work.Wait()
}

func (s *NameServer) serve() {
	question := make([]byte, 1<<10)
	for {
		n, from, err := s.conn.ReadFromUDPAddrPort(question)
		if err != nil {
			return
		}
		s.asked.Add(1)
		if s.isSilent.Load() {
			continue
		}
		if answer := s.answer(question[:n]); answer != nil {
			_, _ = s.conn.WriteToUDPAddrPort(answer, from)
		}
	}
}

// Of RFC 1035.
const (
	headerSize    = 12
	typeA         = 1
	isResponse    = 0x8400 // and authoritative
	noSuchName    = 3
	nameOfRequest = 0xc00c // a pointer to the question's name
)

// answer returns the answer to a message with one question, or nil if the message is malformed.
func (s *NameServer) answer(question []byte) []byte {
	name, end := readName(question)
	if end == 0 || len(question) < end+4 {
		return nil
	}
	s.mu.Lock()
	addresses, isKnown := s.zones[name]
	s.mu.Unlock()
	flags := uint16(isResponse)
	if !isKnown {
		flags |= noSuchName
	}
	if binary.BigEndian.Uint16(question[end:]) != typeA {
		addresses = nil
	}
	answer := append([]byte(nil), question[:2]...)                           // the id
	for _, field := range []uint16{flags, 1, uint16(len(addresses)), 0, 0} { //nolint:gosec // a few addresses
		answer = binary.BigEndian.AppendUint16(answer, field)
	}
	answer = append(answer, question[headerSize:end+4]...)
	for _, address := range addresses {
		answer = binary.BigEndian.AppendUint16(answer, nameOfRequest)
		answer = append(answer, 0, typeA, 0, 1, 0, 0, 0, 0, 0, 4) // class IN, a TTL of 0, and the length
		answer = append(answer, address.AsSlice()...)
	}
	return answer
}

// readName returns the name of a message's question, and its end; end is 0 if the message is malformed.
func readName(question []byte) (name string, end int) {
	var labels []string
	for i := headerSize; i < len(question); {
		size := int(question[i])
		if size == 0 {
			return strings.ToLower(strings.Join(labels, ".")), i + 1
		}
		if size >= 1<<6 || i+1+size > len(question) {
			return "", 0
		}
		labels = append(labels, string(question[i+1:i+1+size]))
		i += 1 + size
	}
	return "", 0
}

// askAgain is after how long a resolver asks again, in place of the five seconds that are usual.
const askAgain = 500 * time.Millisecond

// Resolver returns a resolver that asks only one name server.
func Resolver(nameServer string) *net.Resolver {
	return ResolverOf(func() string { return nameServer })
}

// ResolverOf returns a resolver that asks the name server of the moment alone.
func ResolverOf(nameServer func() string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "udp", nameServer())
		if err != nil {
			return nil, err
		}
		return impatient{conn.(*net.UDPConn)}, nil
	}}
}

// impatient is a socket whose deadlines are askAgain at most. It has the methods of net.PacketConn, by which package net
// recognizes UDP.
type impatient struct{ *net.UDPConn }

// SetDeadline bounds a question and its answer.
func (c impatient) SetDeadline(t time.Time) error {
	if limit := time.Now().Add(askAgain); t.IsZero() || t.After(limit) {
		t = limit
	}
	return c.UDPConn.SetDeadline(t)
}
