// Package bridge gives the packages of the recipes what package recipes keeps private: the
// session of a client, and leases of their own. Package recipes registers both when it is
// initialised. Users can't import this package, so the public types need no method for it.
package bridge
