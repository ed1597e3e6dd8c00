// Package elections has the code of docs/elections.md: how elections that people know
// from elsewhere are said with this library. A test keeps the two alike.
package elections
