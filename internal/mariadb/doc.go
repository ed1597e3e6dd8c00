// Package mariadb runs a private MariaDB server for a test or a demonstration: on
// a directory of its own, reachable by a unix socket alone, gone afterwards.
package mariadb
