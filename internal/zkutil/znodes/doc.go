// Package znodes reads and writes znodes that are not the contenders of their callers: records, limits, the znodes of
// other contenders, and ephemeral znodes at fixed paths. Each function repeats its requests like session.Repeat.
package znodes
