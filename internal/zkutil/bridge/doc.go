// Package bridge gives the recipes' packages access to private parts of package recipes: the session of a
// client, and the creation of leases. Package recipes registers these parts during its initialisation.
// Users can't import package bridge, so the public types need no methods for this access.
package bridge
