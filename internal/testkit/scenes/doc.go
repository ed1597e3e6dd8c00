// Package scenes has one table of scenes for everything that reports on locks, elections and sessions: the log, and the metrics of
// the modules in contrib. A report that is right in one of them is required of the others, too.
package scenes
