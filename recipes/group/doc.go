// Package group provides Group, the membership of processes in a group, such as the replicas of a service, with the wire format
// of Apache Curator's GroupMember. Go and Java services can be members of one group.
//
//	g, err := group.New(client, "/services/web", group.WithID("web-1"))
//	if err != nil {
//		return err
//	}
//	if err := g.Join([]byte("10.0.0.7:8080")); err != nil {
//		return err
//	}
//	defer g.Leave()
//	for members := range g.Watch(ctx) { // the present ones first, and then at each change
//		balancer.Update(members)
//	}
//
// # Guarantees
//
//   - From Join to Leave, a member registers again after every mishap, such as an expired session, a deleted or overwritten znode, or
//     a temporary refusal. The znode is deleted after Leave, or with the session.
//   - An ID has at most one member at a time: while another session, or another Group of the same client, has the ID, a member waits.
//     No member takes the znode of another.
//   - Watch sends a list after each change, or within a session timeout if the notification was lost. One list may include several
//     changes.
//
// # Non-guarantees
//
// A list is always slightly out of date. A dead process is a member until its session expires. A live process is missing while
// its client gets a new session. Two members may see different lists at the same time. So use a list for load balancing and
// dashboards, but never for exclusion: exclusion requires a lock or an election.
//
// # Failures
//
//	event                             effect on a member
//	connection lost, session survives stays a member
//	session expired                   registers again in the next session
//	znode deleted or overwritten      registers again at once
//	another member has the ID         waits, Err is ErrTaken
//	a lasting znode has the name      waits, Err is ErrNotEphemeral
//	the server refuses (zk.ErrNoAuth) tries again with pauses up to 30 s; Err is the refusal
//	Client.Close, end of the process  leaves
//
// # On the wire
//
// A member is the ephemeral znode path/ID with the data of Join, as in Curator's GroupMember. The ID is the name as it is, such
// as "web 1" or "münchen"; only a slash is refused. Children that are not ephemeral are not members, and neither are contenders
// for a lock or an election on the path. A member's znode has no uuid, so each process must choose its own name.
//
// # Cost
//
// Joining takes two requests. Members and Watch list the directory and read the members with up to 256 requests in flight, so a
// thousand members take five round trips. Watch keeps a watch on the directory and on each member, and reads all members again
// on a new connection. A change costs each watching process one listing and one read. If all of a thousand members watch, the
// restart of one member costs two thousand listings: let only a few processes watch.
//
// While nothing changes, no client lists or writes. To catch lost notifications, a client reads each watched znode once per session
// timeout. A member reads its own znode, and a watcher of a thousand members sends 1,001 reads, 33 a second with a timeout of 30 s. The
// reads cost one server a few milliseconds, and the quorum nothing.
//
// # Concurrency
//
// All methods may be called concurrently. The goroutine of Watch ends with the context, and the goroutine of Join with Leave. Close of
// the client waits for both.
package group
