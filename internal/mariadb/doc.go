// Package mariadb runs a private MariaDB server for a test or a demonstration: in its own
// directory, reachable only through a unix socket, and removed afterwards.
package mariadb
