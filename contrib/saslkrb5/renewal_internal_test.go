package saslkrb5

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/testkit"
	"github.com/zkrecipes/zkrecipes/recipes"
)

// scriptedKDC gives configured answers. Each ticket lives for ten hours.
type scriptedKDC struct {
	mu      sync.Mutex    // protects the fields below
	silent  chan struct{} // delays the answer until closed; nil: no delay
	failure error
	asked   int
}

const ticketLife = 10 * time.Hour

func (k *scriptedKDC) ask(string) (*ticket, error) {
	k.mu.Lock()
	k.asked++
	silent := k.silent
	k.mu.Unlock()
	if silent != nil {
		<-silent
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failure != nil {
		return nil, k.failure
	}
	return &ticket{begin: time.Now(), until: time.Now().Add(ticketLife)}, nil
}

// become changes the answer.
func (k *scriptedKDC) become(failure error, silent chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.silent != nil {
		close(k.silent)
	}
	k.failure, k.silent = failure, silent
}

func (k *scriptedKDC) count() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.asked
}

// pass lets virtual time pass.
func pass(d time.Duration) { time.Sleep(d) } //nolint:forbidigo // virtual time

func mechanismOf(k *scriptedKDC) *Mechanism {
	return &Mechanism{services: map[string]*service{}, ask: k.ask}
}

// ticketWithin asks for a ticket, as a login within a second does.
func ticketWithin(m *Mechanism) (*ticket, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return m.ticketFor(ctx, "zookeeper/zk1")
}

// While the ticket is valid, a silent or refusing KDC delays no login, and the mechanism asks it again later.
func TestRenewalDelaysNoLogin(t *testing.T) {
	for name, failure := range map[string]error{"silent": nil, "refuses": errors.New("KDC_ERR_CLIENT_REVOKED")} {
		t.Run(name, func(t *testing.T) {
			testkit.BubbleFor(t, 2*ticketLife, func(t *testing.T) {
				kdc := &scriptedKDC{}
				m := mechanismOf(kdc)
				first, err := ticketWithin(m)
				require.NoError(t, err)
				pass(ticketLife/2 - time.Second)
				again, err := ticketWithin(m)
				require.NoError(t, err)
				require.Same(t, first, again)
				require.Equal(t, 1, kdc.count(), "the ticket is young")

				if failure == nil {
					kdc.become(nil, make(chan struct{}))
				} else {
					kdc.become(failure, nil)
				}
				pass(2 * time.Second)
				const logins, pause = 1000, 100 * time.Millisecond
				for range logins {
					beganAt := time.Now()
					again, err = ticketWithin(m)
					require.NoError(t, err)
					require.Same(t, first, again)
					require.Zero(t, time.Since(beganAt))
					pass(pause)
				}
				require.LessOrEqual(t, kdc.count(), 1+int(logins*pause/failurePause))

				pass(ticketLife / 2)
				_, err = ticketWithin(m)
				if failure != nil {
					require.ErrorIs(t, err, ErrWrongKey)
				} else {
					require.ErrorIs(t, err, ErrKDCUnreachable)
					require.NotErrorIs(t, err, recipes.ErrLoginRefused)
				}
				kdc.become(nil, nil)
				pass(failurePause)
				_, err = ticketWithin(m)
				require.NoError(t, err)
			})
		})
	}
}

// Logins without a ticket share one exchange with the KDC, and each gives up with its own context.
func TestFirstTicketIsShared(t *testing.T) {
	testkit.BubbleFor(t, 2*ticketLife, func(t *testing.T) {
		kdc := &scriptedKDC{silent: make(chan struct{})}
		m := mechanismOf(kdc)
		const waiting = 20
		tickets := make(chan *ticket, waiting)
		for range waiting {
			go func() { // ends with the ticket; joined below
				got, _ := m.ticketFor(context.Background(), "zookeeper/zk1")
				tickets <- got
			}()
		}
		_, err := ticketWithin(m)
		require.ErrorIs(t, err, ErrKDCUnreachable)
		kdc.become(nil, nil)
		first := <-tickets
		require.NotNil(t, first)
		for range waiting - 1 {
			require.Same(t, first, <-tickets)
		}
		require.Equal(t, 1, kdc.count())
	})
}

// A failure is remembered for seconds, also by logins that have no ticket.
func TestFailureOfTheKDCIsRemembered(t *testing.T) {
	testkit.BubbleFor(t, 2*ticketLife, func(t *testing.T) {
		kdc := &scriptedKDC{failure: errors.New("KDC_ERR_S_PRINCIPAL_UNKNOWN")}
		m := mechanismOf(kdc)
		const pause = 250 * time.Millisecond
		for range 100 {
			_, err := ticketWithin(m)
			require.ErrorIs(t, err, ErrUnknownServer)
			pass(pause)
		}
		require.Equal(t, int(100*pause/failurePause), kdc.count())
		kdc.become(nil, nil)
		pass(failurePause)
		_, err := ticketWithin(m)
		require.NoError(t, err)
	})
}
