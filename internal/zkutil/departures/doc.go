// Package departures keeps the contenders that a session deletes in the background: after a lost answer to a delete, and after an
// abandoned create.
//
// Until the deletion, such a contender is in its queue, perhaps ahead of a new contender of the session, although no caller waits
// with it any more. A try, which may not wait for other contenders, waits for departures instead of failing because of them. A
// delete that was sent over the present connection is no departure, because the server executes it before the session's later
// requests.
package departures
