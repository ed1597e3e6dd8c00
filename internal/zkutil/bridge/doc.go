// Package bridge gives the recipes' packages access to two private parts of package recipes, a client's session and the
// creation of leases. Package recipes registers these parts during its initialisation. Users can't import package
// bridge, so the public types need no methods for this access.
package bridge
