// Package zkadmin does to a ZooKeeper server what no client library offers: it asks the four-letter words and it ends
// somebody else's session.
//
// Every call opens a connection of its own and closes it. Session ids are taken as arguments and never appear in an
// error: the password of a session follows from its id.
package zkadmin
