// Package snippets has the code quoted by the README and the pages in docs. A test requires that each quote is in a file
// of examples, so that it compiles. Other tests run the code.
package snippets
