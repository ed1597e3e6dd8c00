package main

const (
	noReconfig = "zktest has neither reconfiguration nor a superuser"
	noReadOnly = "zktest has no read-only mode"
)

// outOfGoZookeeper are tests of go-zookeeper that are out by design.
var outOfGoZookeeper = map[string]string{
	"TestIntegration_IncrementalReconfig": noReconfig,
	"TestIntegration_Reconfig":            noReconfig,
}

// outOfKazoo are tests of kazoo that are out by design.
var outOfKazoo = map[string]string{
	"test_client.TestReconfig.test_add_remove_observer": noReconfig,
	"test_client.TestReconfig.test_bad_input":           noReconfig,
	"test_client.TestReconfig.test_no_super_auth":       noReconfig,
	"test_connection.TestReadOnlyMode.test_read_only":   noReadOnly,
}

// racyInKazoo are tests of kazoo with a race in the test. start raises AuthFailedError only if the refusal arrives
// after start saw the connection, and a timeout otherwise.
var racyInKazoo = map[string]string{
	"test_sasl.TestLegacySASLDigestAuthentication.test_invalid_sasl_auth": "start raises a timeout",
	"test_sasl.TestSASLDigestAuthentication.test_invalid_sasl_auth":       "start raises a timeout",
}
