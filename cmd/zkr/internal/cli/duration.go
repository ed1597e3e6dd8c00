package cli

import (
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// durationValue is a flag that takes 1m30s, or a number of seconds as flock(1) does.
type durationValue time.Duration

func (d *durationValue) Set(text string) error {
	parsed, err := parseDuration(text)
	if err == nil {
		*d = durationValue(parsed)
	}
	return err
}

func (d *durationValue) Type() string { return "duration" }

func (d *durationValue) String() string {
	if *d == 0 {
		return "" // not shown as a default
	}
	return time.Duration(*d).String()
}

// maxSeconds is the longest time that a number of seconds may say.
const maxSeconds = 100 * 365 * 24 * 3600

func parseDuration(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds >= -maxSeconds && seconds <= maxSeconds) {
		return 0, fmt.Errorf("%q is neither a time such as 1m30s nor a number of seconds", text)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

func durationVar(flags *pflag.FlagSet, d *time.Duration, name, shorthand string, value time.Duration, usage string) {
	*d = value
	flags.VarP((*durationValue)(d), name, shorthand, usage)
}
