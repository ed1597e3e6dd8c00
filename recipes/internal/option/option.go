package option

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
)

// Apply applies options to cfg, in their order. It returns the first error.
func Apply[Config any, Option ~func(*Config) error](cfg *Config, opts []Option) error {
	for _, opt := range opts {
		if opt == nil {
			return errors.New("nil option")
		}
		if err := opt(cfg); err != nil {
			return err
		}
	}
	return nil
}

// maxID is the longest id that a contender may write into its znode, in bytes.
const maxID = 64 << 10

// SetID sets the id of a contender, unless it is too long.
func SetID(target *[]byte, id string) error {
	*target = []byte(id)
	return CheckID(id)
}

// CheckID returns an error if an id is too long.
func CheckID(id string) error {
	if len(id) > maxID {
		return fmt.Errorf("id of %d bytes: more than %d", len(id), maxID)
	}
	return nil
}

// maxName is the length of the longest name of a recipe, in bytes.
const maxName = 128

// SetName sets the name of a recipe. It must be valid UTF-8, because tracing systems take no other
// text.
func SetName(target *string, name string) error {
	switch {
	case name == "":
		return errors.New("name: empty")
	case len(name) > maxName:
		return fmt.Errorf("name of %d bytes: more than %d", len(name), maxName)
	case !utf8.ValidString(name):
		return errors.New("name: not valid UTF-8")
	}
	*target = name
	return nil
}

// CheckPositive returns an error unless d is positive.
func CheckPositive(name string, d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%s: %v is not positive", name, d)
	}
	return nil
}

// CheckRetry returns an error if a field of a retry policy is negative.
func CheckRetry(name string, policy zkutil.Retry) error {
	if min(policy.InitialInterval, policy.MaxInterval, policy.MaxElapsed) < 0 || policy.MaxAttempts < 0 {
		return fmt.Errorf("%s: negative field", name)
	}
	return nil
}
