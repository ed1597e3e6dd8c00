// Package byname is for clients that find servers by name. A [NameServer] can fall silent. A [Router] represents several
// servers at one address, and distinguishes them by the name that a client asks for in TLS.
//
//	names, err := byname.StartNameServer()
//	router, err := byname.StartRouter(map[string]string{"zk1.example.test": upstream, …})
//	names.Set("zk1.example.test", netip.MustParseAddr("127.0.0.1"))
//	net.DefaultResolver = byname.Resolver(names.Addr())
//
// All methods may be called concurrently.
package byname
