// Package saslkrb5 logs clients in with Kerberos, at servers whose section Server in the JAAS configuration has a keytab:
//
//	mechanism, err := saslkrb5.New(saslkrb5.Config{Principal: "ann@EXAMPLE.COM", KeytabFile: "/etc/ann.keytab"})
//	client, err := recipes.Connect(ctx, servers, recipes.WithSASL(mechanism))
//
// The package is a separate module, because it depends on gokrb5, an implementation of Kerberos in Go.
//
// # What is promised
//
//   - Mutual authentication: the server proves its identity, too. Nothing is encrypted after the login: use TLS for that.
//   - Few requests to the KDC: a service ticket serves all logins at a server until its end. From half of its life on, a login also asks for
//     a new one in the background, and again five seconds after a failure at the earliest. So a KDC that refuses or is silent costs no lease
//     while the ticket is valid.
//   - Named errors: see [ErrTicketExpired] and the others. All but [ErrKDCUnreachable] match recipes.ErrLoginRefused.
//
// # Limits
//
// Encryption types are those of AES. A keytab or a credential cache is read again for each new ticket, so that either may be
// replaced while the program runs. Delegation is not supported.
package saslkrb5
