package faultproxy

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
)

const cuts = 200 // with the defect, one cut in eight let something through

// A held answer is lost with its connection, because a test that cut the connection relies on that.
func TestHeldReplyIsLostWithItsConnection(t *testing.T) {
	for range cuts {
		answered := answerAll(t)
		p := New(t, answered.address)
		client := connect(t, p)
		arrived, _ := p.HoldReply(Any())
		send(t, client, request(1, proto.OpCreate, "/a"))
		<-arrived
		p.Cut()
		got, _ := io.ReadAll(client) // with an error if the server's end was reset
		require.Empty(t, got)
		p.Close()
		answered.join()
	}
}

// A held request is lost with its connection, too.
func TestHeldRequestIsLostWithItsConnection(t *testing.T) {
	for range cuts {
		answered := answerAll(t)
		p := New(t, answered.address)
		client := connect(t, p)
		arrived, _ := p.HoldRequest(Any())
		send(t, client, request(1, proto.OpCreate, "/a"))
		<-arrived
		p.Cut()
		p.Close()
		require.Equal(t, 1, answered.join(), "the handshake alone")
	}
}

// fakeServer answers every frame on one connection.
type fakeServer struct {
	address string
	frames  chan int // gets the number of frames at the end
}

func answerAll(t *testing.T) fakeServer {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := fakeServer{listener.Addr().String(), make(chan int, 1)}
	go func() { // ends with the connection; joined by join
		defer listener.Close()
		conn, err := listener.Accept()
		if err != nil {
			s.frames <- 0
			return
		}
		defer conn.Close()
		count := 0
		for {
			if _, err := readFrame(conn); err != nil {
				s.frames <- count
				return
			}
			count++
			_, _ = conn.Write(proto.NewEncoder().Int32(1).Int64(0).Int32(proto.CodeOK).Raw(make([]byte, 20)).Frame())
		}
	}()
	return s
}

func (s fakeServer) join() (frames int) { return <-s.frames }

// connect makes a connection and awaits the answer to its handshake.
func connect(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	client, err := net.Dial("tcp", p.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { client.Close() })
	send(t, client, make([]byte, 44))
	_, err = readFrame(client)
	require.NoError(t, err)
	return client
}

func send(t *testing.T, client net.Conn, body []byte) {
	t.Helper()
	_, err := client.Write(proto.NewEncoder().Raw(body).Frame())
	require.NoError(t, err)
}
