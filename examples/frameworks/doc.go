// Package frameworks runs elections inside frameworks that need modules of their own, such as asynq. The package is only
// compiled, in a module that is not in go.work:
//
//	GOWORK=off go build ./...
package frameworks
