// Package trace calls the hooks of the user that follow acquisitions, leases and the connection.
package trace
