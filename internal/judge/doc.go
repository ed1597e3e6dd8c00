// Package judge decides whether holds of a lock, or terms of leadership, violate their guarantees: one holder at an instant
// ([Holders], [Section]), tokens that grow from grant to grant ([Tokens]), and a store that refuses tokens lower than the
// highest token so far ([Store]). [Terms] judges a complete record by the first two rules. The caller, which is a referee,
// decides whether a breach has an [Excuse]. An action of a third party against a znode or a session is a harm to its term.
//
// Only tests import judge: all tests that judge a lock or an election, namely the fault schedules, the turmoil of elections,
// the elections on real servers, and the chaos.
package judge
