// Package shared has values that several users share by a key for as long as one of them has the value.
package shared
