// Package recipe is what all recipes of this module have in common, and no user needs: access
// to the session of a client, and the public form of what the queue reports.
package recipe
