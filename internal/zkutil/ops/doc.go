// Package ops remembers which operations the servers lack.
//
//   - [Optional] is about operations that another operation can replace. It remembers, for each server, whether the server
//     knows them.
//   - [Suspects] is about all other operations. It decides when to blame a request for the connections that end at it.
//
// Both only remember. The caller sends the requests, and reports the outcomes. All methods may be called concurrently. They
// call no other package under a lock, and start no goroutine.
package ops
