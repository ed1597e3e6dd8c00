/*
 * The lock recipe of package mutex, for the model checker spin: make model.
 *
 * Clients acquire, change a guarded value and release, while answers are lost, requests
 * land late, sessions expire and processes pause. What has to hold:
 *
 *   exclusion  no two clients believe that they hold the lock, unless one is paused
 *   fencing    no change of the guarded value is lost, pauses or not
 *   no ghost   everybody gets the lock: a znode left behind would block for ever, and
 *              spin reports that as an invalid end state
 *
 * Each of these takes one thing out of the recipe, and something breaks: FENCED=false,
 * UNPROTECTED (create), NOSYNC, STALESESSION (noted before the create), NODEADLINE,
 * NORECHECK (of the own znode).
 */
#ifndef CLIENTS
#define CLIENTS 3
#define LOST 2 /* connections that end in place of an answer */
#define EXPIRIES 2
#endif
#define CREATES (CLIENTS + LOST + EXPIRIES) /* at most */
#define NONE 255
#ifndef FENCED
#define FENCED true
#endif

typedef Znode { bool there; byte by; byte session };
Znode znode[CREATES];  /* the index stands for the czxid: order of the queue, and token */
byte created;
byte session[CLIENTS]; /* of each client, as the server counts them */
byte lost = LOST, expiries = EXPIRIES, quits = 1;

bool late[CLIENTS];     /* a create is under way on a connection that has ended */
bool believes[CLIENTS]; /* the lease's context stands */
bool paused[CLIENTS];   /* it could not end: the process did not run */
byte claimed, value;    /* the guarded row */

inline apply(c) { /* the server executes a create */
	znode[created].there = true;
	znode[created].by = c;
	znode[created].session = session[c];
	created++
}

inline find(c, upto, found) { /* the last znode there before upto, of one client or of all */
	found = NONE;
	do
	:: i < upto ->
		if :: znode[i].there && (c == NONE || znode[i].by == c) -> found = i :: else fi;
		i++
	:: else -> break
	od;
	i = 0
}

proctype client(byte me) {
	byte mine, ahead, read, noted, i;
create:
	mine = NONE; noted = session[me];
	atomic {
		if
		:: apply(me); mine = created - 1
		:: lost > 0 -> lost--; if :: apply(me) :: late[me] = true :: skip fi
		fi
	}
#ifndef UNPROTECTED
	if :: mine != NONE :: else ->
#ifndef NOSYNC
		atomic { /* sync: what was under way has landed, or never will */
			if :: late[me] -> late[me] = false; if :: apply(me) :: skip fi :: else fi
		}
#endif
		atomic { find(me, created, mine) } /* by the GUID in its name */
	fi;
#endif
	if :: mine == NONE -> goto create :: else fi;
#ifdef STALESESSION
	if :: znode[mine].session != noted -> goto create :: else fi;
#endif
	do
	:: atomic { find(NONE, mine, ahead); if :: ahead == NONE -> break :: else fi };
		if
		:: quits > 0 -> quits--; goto release /* cancelled */
		:: !znode[ahead].there || !znode[mine].there /* two watches */
		fi;
		if :: !znode[mine].there -> goto create :: else fi
	od;
	skip; /* much may happen since the listing */
	atomic { /* the grant, under the lock that a change of session needs */
#ifndef NORECHECK
		if :: !znode[mine].there || znode[mine].session != session[me] -> goto create :: else fi;
#endif
		believes[me] = true;
		do
		:: i < CLIENTS -> assert(i == me || !believes[i] || paused[i]); i++
		:: else -> break
		od;
		i = 0
	}

	/* Claim, read, write: a statement each at the database. */
	if
	:: atomic { !believes[me] -> goto release }
	:: atomic { believes[me] -> if :: FENCED && claimed > mine -> goto release :: else -> claimed = mine fi }
	fi;
	read = value;
	atomic {
		if :: FENCED && claimed != mine -> goto release :: else fi;
		assert(value == read);
		value++
	}

release: /* repeated until an answer comes, or the session has ended */
	skip;
	atomic { believes[me] = false; paused[me] = false };
	do :: atomic { znode[mine].there = false; break }
	:: atomic { lost > 0 -> lost--; if :: znode[mine].there = false :: skip fi }
	od
}

proctype fate(byte c) { /* what may happen to a client at any time */
	byte i;
end:
	do
	:: atomic { expiries > 0 -> expiries--;
#ifndef NODEADLINE
		believes[c] = believes[c] && paused[c]; /* a running process was told before */
#endif
		session[c]++;
		late[c] = false; /* refused from now on */
		do
		:: i < created -> if :: znode[i].by == c -> znode[i].there = false :: else fi; i++
		:: else -> break
		od;
		i = 0
	}
	:: atomic { late[c] -> late[c] = false; apply(c) }
	:: atomic { believes[c] && !paused[c] -> paused[c] = true }
	:: atomic { paused[c] -> paused[c] = false; believes[c] = false }
	od
}

init {
	atomic {
		byte c;
		do :: c < CLIENTS -> run client(c); run fate(c); c++ :: else -> break od
	}
}
