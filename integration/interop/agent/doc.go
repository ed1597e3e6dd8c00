// Package agent drives a peer in a separate process, in any language, over its standard input and output.
//
// A command is a line with its number, its name and its words, separated by single spaces and escaped as in a URL's query. The
// answer is a line, too, with the number, then "ok" and words, or "error" and a text. Commands with different first words run
// side by side, so answers arrive in any order. The process ends with its input.
package agent
