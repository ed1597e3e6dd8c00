// Package option applies functional options, and checks the values that several packages of the
// recipes have options for.
package option
