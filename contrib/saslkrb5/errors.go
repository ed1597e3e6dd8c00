package saslkrb5

import (
	"errors"
	"fmt"
	"strings"

	"github.com/zkrecipes/zkrecipes/recipes"
)

// The errors of a login, for errors.Is.
var (
	// ErrTicketExpired is returned when the ticket in the credential cache is expired. Run kinit again.
	ErrTicketExpired = refusal("the ticket has expired")
	// ErrClockSkew is returned when the clock differs by more than five minutes from the KDC's: set the clocks.
	ErrClockSkew = refusal("the clock differs too much from the KDC's")
	// ErrWrongKey is returned when the KDC does not know the principal, or another password or keytab for it.
	ErrWrongKey = refusal("the KDC does not accept the principal with this password or keytab")
	// ErrUnknownServer is returned when the KDC does not know the principal of the server. The principal contains the server's
	// name as given to Connect, unless Config.Service changes the name.
	ErrUnknownServer = refusal("the KDC does not know the principal of the server")
	// ErrKDCUnreachable is returned when no KDC answers, and no ticket is left. The client tries again.
	ErrKDCUnreachable = errors.New("no KDC answers")
)

// refusal returns an error that matches recipes.ErrLoginRefused.
func refusal(text string) error { return fmt.Errorf("%w: %s", recipes.ErrLoginRefused, text) }

// meanings maps parts of the texts of gokrb5's errors, which wrap nothing, to the errors of this package.
var meanings = []struct { //nolint:gochecknoglobals // a constant table
	text string
	err  error
}{
	{"KRB_AP_ERR_SKEW", ErrClockSkew},
	{"clock skew", ErrClockSkew},
	{"KRB_AP_ERR_TKT_EXPIRED", ErrTicketExpired},
	{"KRB_AP_ERR_TKT_NYV", ErrClockSkew},
	{"KDC_ERR_C_PRINCIPAL_UNKNOWN", ErrWrongKey},
	{"KDC_ERR_PREAUTH_FAILED", ErrWrongKey},
	{"KDC_ERR_CLIENT_REVOKED", ErrWrongKey},
	{"KDC_ERR_KEY_EXPIRED", ErrWrongKey},
	{"matching key not found in keytab", ErrWrongKey},
	{"Decrypting_Error", ErrWrongKey},
	{"KDC_ERR_S_PRINCIPAL_UNKNOWN", ErrUnknownServer},
	{"Networking_Error", ErrKDCUnreachable},
	{"error sending to a KDC", ErrKDCUnreachable},
}

// named makes an error of gokrb5 match an error of this package.
func named(err error) error {
	if err == nil {
		return nil
	}
	for _, meaning := range meanings {
		if strings.Contains(err.Error(), meaning.text) {
			return fmt.Errorf("kerberos: %w: %w", meaning.err, err)
		}
	}
	return fmt.Errorf("kerberos: %w", err)
}
