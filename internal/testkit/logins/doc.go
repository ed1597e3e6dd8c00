// Package logins provides real ZooKeeper servers that demand a login, and a KDC of MIT Kerberos, all of them processes on
// 127.0.0.1. They need Debian's krb5-kdc, krb5-admin-server and krb5-user, and a JDK with ZooKeeper's jars. Only tests import it.
package logins
