// Package logins tests how clients log in at real servers.
package logins
