package once

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// At returns the occurrence of an instant: RFC 3339 in UTC with nine digits of fractions. All hosts have to pass the same instant:
// use [Tick] for the time of now, because hosts do not wake up at the same nanosecond.
//
// Such an occurrence is refused with ErrTooEarly while it is more than a minute ahead of the servers' clock.
func At(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000000Z") }

// Tick returns the occurrence of the latest multiple of period, or of the next one if that is at most half a minute ahead of now, and
// nearer. Pass time.Now(). So a host that wakes up for a tick names that tick, even if its clock or its timer is half a minute early, and a
// host that starts between two ticks makes up for the previous one. Multiples count from the zero time in UTC, as those of
// time.Time.Round do: days begin at midnight UTC, and weeks on Monday. Tick panics if period is not positive.
//
//	o.Do(ctx, once.Tick(time.Now(), time.Hour), report)
//
// Truncate in place of Tick loses a run without an error. A host whose timer fires 2 ms early gets the tick before, which is done. Round in
// place of Tick names a tick that is still ahead for half of the time, and Do refuses it with ErrTooEarly.
func Tick(now time.Time, period time.Duration) string {
	if period <= 0 {
		panic(fmt.Sprintf("once: Tick: period %v is not positive", period))
	}
	return At(now.Add(min(period/2, maxAhead/2)).Truncate(period))
}

// instantOf returns the instant that an occurrence names, which is one of At or another RFC 3339 time, with or without
// seconds. A time without a zone is no instant, because each host may read it differently.
func instantOf(occurrence string) (t time.Time, isInstant bool) {
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04Z07:00"} {
		if t, err := time.Parse(layout, occurrence); err == nil {
			return t, true
		}
	}
	return time.Time{}, false
}

// isSame reports whether two occurrences are the same event.
func isSame(a, b string) bool {
	order, isOrdered := compare(a, b)
	return isOrdered && order == 0
}

// compare returns the order of two occurrences. isOrdered is false if they have different formats: then neither is known to
// be the later one, and both may name the same event.
func compare(a, b string) (order int, isOrdered bool) {
	instantA, isInstantA := instantOf(a)
	instantB, isInstantB := instantOf(b)
	if isInstantA || isInstantB {
		return instantA.Compare(instantB), isInstantA && isInstantB
	}
	formatA, numbersA := splitNumbers(a)
	formatB, numbersB := splitNumbers(b)
	if numbersA == nil && numbersB == nil {
		return strings.Compare(a, b), true
	}
	return slices.CompareFunc(numbersA, numbersB, compareNumbers), formatA == formatB
}

var number = regexp.MustCompile(`[0-9]+(\.[0-9]+)*`)

// splitNumbers returns an occurrence without its numbers, and the numbers. Numbers with dots in between, as in a version,
// are one number.
func splitNumbers(occurrence string) (format string, numbers []string) {
	return number.ReplaceAllLiteralString(occurrence, "\x00"), number.FindAllString(occurrence, -1)
}

// compareNumbers compares numbers part by part, so that 1.9 is before 1.10, and 1.10 before 1.10.1.
func compareNumbers(a, b string) int {
	return slices.CompareFunc(strings.Split(a, "."), strings.Split(b, "."), func(a, b string) int {
		a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
		return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b))
	})
}
