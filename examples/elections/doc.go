// Package elections has the code of docs/from-others.md, which maps elections of other tools to
// this library. A test keeps both alike.
package elections
