// Package option applies functional options, and checks option values that several recipes have in
// common.
package option
