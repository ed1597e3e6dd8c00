// Package group provides Group: the membership of processes in a group, such as the replicas of a service, with the wire format of
// Apache Curator's GroupMember. Go and Java services can be members of one group.
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
//   - From Join to Leave, a member registers again after every mishap: an expired session, a deleted or overwritten znode, a temporary
//     refusal. The znode is gone after Leave, or with the session.
//   - An ID has at most one member at a time: while another session, or another Group of the same client, has the ID, a member waits.
//     No member takes the znode of another.
//   - Watch sends a list after each change, or within a session timeout if the notification was lost. One list may include several
//     changes.
//
// # Non-guarantees
//
// A list is always slightly out of date. A process that has died is a member until its session expires. A live process is missing while
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
// A member is the ephemeral znode path/ID, with the data of Join. The ID is escaped like a segment of a URL's path. Children
// that are not ephemeral are not members, and neither are contenders for a lock or an election on the path. A member's znode has no uuid, so each process must choose its own name.
//
// # Cost
//
// Joining takes two requests. Watch keeps a watch on the directory and on each member: a change costs each watching process one listing
// and one read. If all of a thousand members watch, the restart of one member costs two thousand listings: let only a few processes
// watch.
//
// # Concurrency
//
// All methods may be called concurrently. The goroutine of Watch ends with the context, and the goroutine of Join with Leave. Close of
// the client waits for both.
package group
