package wire

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/proto"
	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/dial"
)

// saslStep is a result of Respond.
type saslStep struct {
	response []byte
	isDone   bool
	err      error
}

// scriptedLogin is a Login with given responses, which records the challenges.
type scriptedLogin struct {
	server     string
	steps      []saslStep
	challenges [][]byte
	contexts   []context.Context //nolint:containedctx // their ends are the subject
}

func (l *scriptedLogin) Respond(ctx context.Context, challenge []byte) (response []byte, isDone bool, err error) {
	step := l.steps[len(l.challenges)]
	l.challenges, l.contexts = append(l.challenges, challenge), append(l.contexts, ctx)
	return step.response, step.isDone, step.err
}

func (*scriptedLogin) Explain() string { return "a bad password" }

// tokenFrame is a server's answer to a message of a login.
func tokenFrame(token []byte) []byte {
	return proto.NewEncoder().Raw(answerFrame(firstXid, 0, proto.CodeOK)[4:]).Buffer(token).Frame()
}

// runLogin plays a server that answers the handshake, and then one message of a login with each answer. It returns the messages, and
// the result of zk.Conn's first read.
func runLogin(t *testing.T, conn *faultyConn, server net.Conn, login *scriptedLogin, answers ...[]byte) (messages [][]byte, l *Line, err error) {
	t.Helper()
	o := &testOwner{period: time.Second, patience: 3 * time.Second}
	w := newTestWire(t, o, conn)
	w.SetMechanism(func(_ context.Context, server string) (Login, error) {
		login.server = server
		return login, nil
	})
	dialled, err := w.Dial("tcp", "a:1", 0)
	require.NoError(t, err)
	played := make(chan struct{})
	go func() {
		defer close(played)
		_, _ = server.Write(handshakeFrame(7))
		for _, answer := range answers {
			message, err := readWhole(server)
			if err != nil {
				return
			}
			messages = append(messages, message)
			_, _ = server.Write(answer)
		}
		_, _ = readWhole(server)
		_ = server.Close()
	}()
	frame, err := readWhole(dialled)
	if err == nil {
		require.Equal(t, handshakeFrame(7), frame, "as without a login")
	}
	_ = dialled.Close()
	<-played
	w.Close()
	for _, ctx := range login.contexts {
		require.Error(t, ctx.Err(), "the contexts are released")
	}
	return messages, dialled.(*Line), err
}

func TestLoginIsDecidedByTheServer(t *testing.T) {
	respond := func(responses ...string) (steps []saslStep) {
		for i, r := range responses {
			steps = append(steps, saslStep{response: []byte(r), isDone: i == len(responses)-1})
		}
		return steps
	}
	refused := func(code int32) []byte { return answerFrame(firstXid, 0, code) }
	many := func(n int) []saslStep { return respond(slices.Repeat([]string{"m"}, n)...) }
	tokens := slices.Repeat([][]byte{tokenFrame([]byte("c"))}, maxLoginSteps)
	errOfMechanism := errors.New("no ticket")
	const long = maxLoginAnswer - proto.HeaderSize // without the length of the token
	for name, test := range map[string]struct {
		steps      []saslStep
		answers    [][]byte
		challenges []string // after the first, which is nil
		err        error
		text       string
	}{
		"one message":           {steps: respond("a"), answers: [][]byte{tokenFrame([]byte("c"))}},
		"two messages":          {steps: respond("a", "b"), answers: [][]byte{tokenFrame([]byte("c")), tokenFrame(nil)}, challenges: []string{"c"}},
		"an empty message":      {steps: []saslStep{{response: []byte{}}, {isDone: true}}, answers: [][]byte{tokenFrame([]byte("c"))}, challenges: []string{"c"}},
		"no message":            {steps: []saslStep{{isDone: true}}},
		"nothing, and not done": {steps: []saslStep{{}}, text: "SASL login: the mechanism returned no response, but is not done"},
		"a failed mechanism":    {steps: []saslStep{{err: errOfMechanism}}, err: errOfMechanism, text: "SASL login: no ticket"},
		"a failed second step": {
			steps: []saslStep{{response: []byte("a")}, {isDone: true, err: errOfMechanism}}, answers: tokens[:1],
			challenges: []string{"c"}, err: errOfMechanism, text: "SASL login: no ticket",
		},
		"refused":                    {steps: respond("a"), answers: [][]byte{refused(proto.CodeAuthFailed)}, err: zkutil.ErrLoginRefused, text: "by the server: a bad password"},
		"refused as required":        {steps: respond("a"), answers: [][]byte{refused(proto.CodeLoginRequired)}, err: zkutil.ErrLoginRefused, text: "by the server: a bad password"},
		"refused for another reason": {steps: respond("a"), answers: [][]byte{refused(proto.CodeNoAuth)}, err: zk.ErrNoAuth},
		"an answer to another":       {steps: respond("a"), answers: [][]byte{proto.NewEncoder().Raw(answerFrame(firstXid-1, 0, 0)[4:]).Buffer(nil).Frame()}, err: errMalformed},
		"no token":                   {steps: respond("a"), answers: [][]byte{answerFrame(firstXid, 0, proto.CodeOK)}, err: errMalformed},
		"no header":                  {steps: respond("a"), answers: [][]byte{proto.NewEncoder().Int32(firstXid).Frame()}, err: errMalformed},
		"more than an answer":        {steps: respond("a"), answers: [][]byte{append(tokenFrame(nil), 0)}, err: errMalformed},
		"the longest answer":         {steps: respond("a"), answers: [][]byte{tokenFrame(make([]byte, long))}},
		"a longer answer":            {steps: respond("a"), answers: [][]byte{tokenFrame(make([]byte, long+1))}, err: errMalformed},
		"as many messages as allowed": {
			steps: many(maxLoginSteps), answers: tokens, challenges: slices.Repeat([]string{"c"}, maxLoginSteps-1),
		},
		"a message more": {
			steps: many(maxLoginSteps + 1), answers: tokens, challenges: slices.Repeat([]string{"c"}, maxLoginSteps-1),
			text: "SASL login: login not finished after 16 messages",
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.Bubble(t, func(t *testing.T) {
				client, server := net.Pipe()
				login := &scriptedLogin{steps: test.steps}
				messages, l, err := runLogin(t, &faultyConn{Conn: client}, server, login, test.answers...)
				require.Equal(t, "a:1", login.server)
				require.Nil(t, login.challenges[0])
				for i, c := range test.challenges {
					require.Equal(t, c, string(login.challenges[i+1]))
				}
				require.Len(t, login.challenges, len(test.challenges)+1)
				require.Len(t, messages, len(test.answers))
				for i, m := range messages {
					require.Equal(t, proto.NewEncoder().Int32(firstXid).Int32(proto.OpSASL).Buffer(test.steps[i].response).Frame(), m)
				}
				if test.err == nil && test.text == "" {
					require.NoError(t, err)
					return
				}
				require.False(t, l.isOpen())
				require.ErrorContains(t, err, test.text)
				if test.err != nil {
					require.ErrorIs(t, err, test.err)
				}
			})
		})
	}
}

// A server before 3.6 refuses a login by hanging up, after any number of bytes. The session is not refused with it, so that is no
// hang-up of a handshake.
func TestHangUpDuringALogin(t *testing.T) {
	answer := tokenFrame([]byte("challenge"))
	for n := range answer {
		for _, response := range []string{"a", ""} {
			testkit.Bubble(t, func(t *testing.T) {
				client, server := net.Pipe()
				conn := &faultyConn{Conn: client}
				w := newTestWire(t, &testOwner{period: time.Second, patience: time.Minute}, conn)
				login := &scriptedLogin{steps: []saslStep{{response: []byte(response), isDone: true}}}
				w.SetMechanism(func(context.Context, string) (Login, error) { return login, nil })
				l, err := w.Dial("tcp", "a:1", 0)
				require.NoError(t, err)
				go func() {
					_, _ = server.Write(handshakeFrame(7))
					_, _ = readWhole(server)
					_, _ = server.Write(answer[:n])
					_ = server.Close()
				}()
				_, err = readWhole(l)
				require.ErrorContains(t, err, "SASL login: ")
				require.False(t, dial.IsHangUp(err), "%v", err)
				require.Equal(t, response != "", errors.Is(err, zkutil.ErrLoginRefused))
				require.Equal(t, response != "", errors.Is(err, zkutil.ErrHungUp))
				if response != "" {
					require.ErrorContains(t, err, ": a bad password")
				}
				w.Close()
			})
		}
	}
}

// A login shares the patience of the handshake.
func TestSilenceDuringALogin(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T) {
		client, server := net.Pipe()
		t.Cleanup(func() { _ = server.Close() })
		w := newTestWire(t, &testOwner{period: time.Second, patience: 3 * time.Second}, client)
		w.SetMechanism(func(context.Context, string) (Login, error) {
			return &scriptedLogin{steps: []saslStep{{response: []byte("a")}}}, nil
		})
		l, err := w.Dial("tcp", "a:1", 0)
		require.NoError(t, err)
		start := time.Now()
		pass(time.Second)
		go func() {
			_, _ = server.Write(handshakeFrame(7))
			_, _ = readWhole(server)
		}()
		_, err = readWhole(l)
		require.ErrorContains(t, err, "SASL login: the server does not answer: ")
		require.Equal(t, 3*time.Second, time.Since(start))
		w.Close()
	})
	testkit.Bubble(t, func(t *testing.T) { // the mechanism itself takes too long
		client, server := net.Pipe()
		t.Cleanup(func() { _ = server.Close() })
		w := newTestWire(t, &testOwner{period: time.Second, patience: 3 * time.Second}, client)
		w.SetMechanism(func(ctx context.Context, _ string) (Login, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		l, err := w.Dial("tcp", "a:1", 0)
		require.NoError(t, err)
		start := time.Now()
		go func() { _, _ = server.Write(handshakeFrame(7)) }()
		_, err = readWhole(l)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 3*time.Second, time.Since(start))
		w.Close()
	})
}

// A message that can't be written fails the login, with the reason of a refusal if the server hung up before.
func TestLoginMessageIsNotWritten(t *testing.T) {
	l := &Line{}
	step := loginStep{response: []byte("a"), reason: "a bad password"}
	require.Equal(t, errFault, l.explainLoginFailure(errFault, step))
	require.ErrorIs(t, l.explainLoginFailure(syscall.EPIPE, step), zkutil.ErrLoginRefused)
	require.Equal(t, io.EOF, l.explainLoginFailure(io.EOF, loginStep{}))
	testkit.Bubble(t, func(t *testing.T) {
		client, server := net.Pipe()
		conn := &faultyConn{Conn: client, failsWrites: true}
		login := &scriptedLogin{steps: []saslStep{{response: []byte("a")}}}
		go func() { synctest.Wait(); _ = server.Close() }()
		_, _, err := runLogin(t, conn, server, login)
		require.ErrorIs(t, err, errFault)
		require.EqualError(t, err, "SASL login: "+errFault.Error())
	})
}
