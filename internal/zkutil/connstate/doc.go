// Package connstate has the states of a session's connection, and passes them to subscribers.
package connstate
