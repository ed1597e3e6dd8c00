// Package snippets has the code that the README and the pages in docs quote. A test checks that each quote is in a file of
// examples as it is, so that it compiles; other tests run the code.
package snippets
