package testkit

import "flag"

// Exhaustive is the flag -exhaustive: it asks for every case, of which tests otherwise leave out some to finish within seconds.
var Exhaustive = flag.Bool("exhaustive", false, "try every case: minutes") //nolint:gochecknoglobals // a flag
