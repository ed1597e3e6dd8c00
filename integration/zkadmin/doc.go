// Package zkadmin does what no client library offers: it sends the four-letter words to a ZooKeeper server, and ends
// other clients' sessions.
//
// Every call opens and closes its own connection. Session ids are arguments and never appear in an error, because the
// password of a session follows from its id.
package zkadmin
