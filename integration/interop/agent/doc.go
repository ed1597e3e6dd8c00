// Package agent drives a peer that runs in a process of its own, in whatever language, over its standard input and output.
//
// A command is a line: its number, its name, its words, separated by single spaces and escaped as in a URL's query. The answer is
// a line too: the number, then "ok" and words, or "error" and a text. Commands that name different things run side by side, so
// answers come in any order. The process ends with its input.
package agent
