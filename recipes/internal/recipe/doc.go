// Package recipe has the parts that all recipes of this module share and no user needs: access to the
// session of a client, and the public form of the queue's results.
package recipe
