// Package judge decides whether holds of a lock, or terms of leadership, break what they promise: one holder at an instant
// ([Holders], [Section]), tokens that grow from grant to grant ([Tokens]), and a store that takes no older token than it has
// seen ([Store]). [Terms] judges a complete record by the first two. Who may be excused, and why, is for the caller to say.
//
// Only tests import it. All of them do that judge a lock or an election: the fault schedules, the turmoil of elections, the
// elections on real servers, and the chaos.
package judge
