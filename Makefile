# The commands of the README. Each says what it needs; CI runs them all.

GOTESTFLAGS ?=
LINT := .bin/golangci-lint-2.15.0

.PHONY: help test integration stock lint

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1	/p' $(MAKEFILE_LIST)

test: ## unit tests with the race detector; needs Go alone
	go test -race $(GOTESTFLAGS) ./... ./examples/...

integration: ## tests on real ZooKeeper servers; needs Docker (and MariaDB for one of them)
	cd integration && go test -race -timeout 30m $(GOTESTFLAGS) ./...
	go run ./integration/cmd/withzk -- go test -race -timeout 10m -tags integration $(GOTESTFLAGS) ./examples/...

stock: ## the stock demo on a real ZooKeeper and SQLite; needs Docker. FLAGS go to the demo: make stock FLAGS=-lock=false
	go run ./integration/cmd/withzk -- go run ./examples/stock $(FLAGS)

lint: $(LINT) ## linters and formatters, on every module
	$(LINT) run ./... ./examples/... ./integration/...
	$(LINT) run --build-tags integration ./examples/...
	$(LINT) fmt --diff ./... ./examples/... ./integration/...

$(LINT):
	GOBIN=$(CURDIR)/.bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	mv .bin/golangci-lint $@
