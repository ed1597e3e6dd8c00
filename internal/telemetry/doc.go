// Package telemetry defines the label values shared by the modules in contrib, so that one dashboard fits all modules.
package telemetry
