package option

import (
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/zkrecipes/zkrecipes/internal/zkutil"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/queue"
	"github.com/zkrecipes/zkrecipes/internal/zkutil/session"
)

// Apply applies options to cfg, in order, and returns the first error.
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

// maxID is the maximum length of the ID that a contender writes into its znode, in bytes.
const maxID = 64 << 10

// SetID sets the ID of a contender, unless the ID is too long.
func SetID(target *[]byte, id string) error {
	*target = []byte(id)
	return CheckID(id)
}

// CheckID returns an error if an ID is too long, or has the text of a request to a contender.
func CheckID(id string) error {
	if _, isYield := queue.ParseYield([]byte(id)); session.IsRevocation([]byte(id)) || isYield {
		return fmt.Errorf("id %q: this text is reserved: in a znode, it asks the owner to release the lease", id)
	}
	if len(id) > maxID {
		return fmt.Errorf("id of %d bytes: more than %d", len(id), maxID)
	}
	return nil
}

// maxName is the maximum length of a recipe's name, in bytes.
const maxName = 128

// SetName sets the name of a recipe. The name must be valid UTF-8, because tracing systems accept no
// other text.
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

// SetMaxHold sets the longest time for which a lease may be held, unless the time is not positive.
func SetMaxHold(target *time.Duration, d time.Duration) error {
	*target = d
	return CheckPositive("max hold", d)
}

// maxPriority bounds priorities, which are part of a znode's name.
const maxPriority = 1_000_000

// SetPriority sets a priority, unless it is out of bounds.
func SetPriority(target **int, priority int) error {
	if priority < -maxPriority || priority > maxPriority {
		return fmt.Errorf("priority: %d is not between %d and %d", priority, -maxPriority, maxPriority)
	}
	*target = &priority
	return nil
}

// CheckRetry returns an error if a field of a retry policy is negative.
func CheckRetry(name string, policy zkutil.Retry) error {
	if min(policy.InitialInterval, policy.MaxInterval, policy.MaxElapsed) < 0 || policy.MaxAttempts < 0 {
		return fmt.Errorf("%s: negative field", name)
	}
	return nil
}
