// Package dial chooses the next server of a session and opens a socket to that server within the session's patience.
//
// # Invariants
//
//   - Foreign code blocks no other code. The user's dialer, the functions of the user's tls.Config, and the name server may be silent for
//     ever. Each call has a goroutine, and every wait for a call ends with a timeout or with the session (see userCode and names). A
//     silent name server neither keeps the session from a server whose address is known, nor holds up Connect's context or Close.
//   - A server's name and address stay together from the choice to the dial, TLS, refusals and patience (see host and
//     [Attempt]). A name may have several addresses, and an address several names.
//   - A failed dial leaves no open socket (see startTLS and limitDialer).
//   - zk.Conn pauses after every round of attempts, because hosts asks for the pause.
//
// # Where to look
//
//   - dial.go, attempt.go have the [Dialer], its [Owner], and an attempt from the dial to the end of the handshake.
//   - hosts.go, names.go have the rounds of servers, and the addresses behind their names.
//   - ensemble.go, track.go have the servers that the configuration of the ensemble lists.
//   - patience.go says how long an attempt may take.
//   - network.go, secure.go, hangup.go, cause.go have sockets, TLS, and the causes of a refusal.
//   - usercode.go calls functions that may block or panic.
//
// # Concurrency
//
// Several goroutines may use a [Dialer] and an [Attempt] at a time. [Dialer.Provider] is called before zk.Connect. A goroutine for
// foreign code ends when that code returns. The owner waits for these goroutines, for a limited time, with
// [Dialer.FinishUserCalls].
//
// # Order of locks
//
// The package calls neither the owner nor foreign code under a lock. Under the owner's lock, the owner may call
// [Dialer.Addresses], [Dialer.SlowHandshakes], [Dialer.PendingLookup] and [Dialer.FinishUserCalls]. All other methods block or call
// the owner. hosts.mu is taken before names.mu, and names.mu before the lock of zkutil.Group. The locks of patience and userCode
// are taken last, and so is that of the causes.
package dial
