// Quickstart is the first program of the README: a lock, a fencing token, and an orderly end.
package main
