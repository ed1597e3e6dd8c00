# The commands of the README. Each says what it needs; CI runs them all.

GOTESTFLAGS ?=
SEED ?= 0
MINUTES ?= 5
FUZZTIME ?= 60s
ZK ?=
export ZK # the Debian suite of the servers: bookworm, trixie or sid; see integration/image/build.sh
RUNS ?= 30
# Tests with less garbage collection, because each zk.Conn has a buffer of 1.5 MiB: a third less processor time.
TEST := GOGC=400 GOMEMLIMIT=2GiB go test
LINT := .bin/golangci-lint-2.15.0
# The oldest and the newest Go that the library supports; the word local stands for the one that is installed.
GO_VERSION ?= go1.25.5
LIBRARY := . cmd/zkr contrib/promzkrecipes contrib/saslkrb5 # contrib/otelzkrecipes needs what OpenTelemetry needs

.PHONY: help quick test oldest flaky fuzz zkr schedules integration newest speed bench bench-smoke model chaos mutants stock stock-zk worker worker-zk lint workflows vulnerabilities release-check

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(MAKEFILE_LIST)

quick: ## at every save, in 20 s: vet, and the unit tests in their short form; needs Go alone
	@# zktest first, because its tests wait. One processor for each package, because bubbles of synctest use no more.
	$(TEST) -short -vet all -cpu 1 -parallel 8 $(GOTESTFLAGS) ./recipes/zktest ./...

test: ## unit tests with the race detector; needs Go alone
	$(TEST) -race $(GOTESTFLAGS) ./... ./examples/... ./contrib/otelzkrecipes/... ./contrib/promzkrecipes/...

oldest: ## builds the library, zkr and contrib, and runs the short unit tests, with another version of Go: make oldest GO_VERSION=go1.27.0; needs Go alone
	for module in $(LIBRARY); do \
		(cd $$module && GOWORK=off GOTOOLCHAIN=$(GO_VERSION) go vet ./...) || exit; \
	done
	GOWORK=off GOTOOLCHAIN=$(GO_VERSION) $(TEST) -short -parallel 8 $(GOTESTFLAGS) ./recipes/... ./internal/zkutil/... ./internal/proto

flaky: ## every unit test package 30 times in its short form, on processors that are busy with other things; needs Go alone
	@load=; trap 'kill $$load' EXIT; for n in $$(seq $$(nproc)); do (while :; do :; done) & load="$$load $$!"; done; \
	$(TEST) -short -count $(RUNS) -timeout 60m $(GOTESTFLAGS) ./recipes/zktest ./...

fuzz: ## the parsers of frames, names and paths, each for FUZZTIME; needs Go alone
	@grep -rlE '^func Fuzz' --include='*_test.go' internal recipes | while read -r file; do \
		for test in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$$file"); do \
			go test -run '^$$' -fuzz "^$$test\$$" -fuzztime $(FUZZTIME) ./$$(dirname "$$file") || exit; \
		done; \
	done

zkr: ## the command line as a black box: real processes, on an embedded ZooKeeper; needs Go and Linux, and a machine that has nothing else to do
	go test -count=1 -timeout 10m $(GOTESTFLAGS) ./cmd/zkr/...

schedules: ## 10,000 seeded schedules of faults against each lock, 100,000 operations with faults against a limit, and slow quorums from every phase, in virtual time; needs Go alone
	$(TEST) -count=1 -timeout 30m $(GOTESTFLAGS) -run TestFaultSchedules ./recipes/mutex ./recipes/rwlock ./recipes/semaphore -schedules 10000
	$(TEST) -count=1 -timeout 30m $(GOTESTFLAGS) -run 'TestAllOrNothing|TestLimitUnderFaultedOperations' ./recipes/semaphore -exhaustive
	$(TEST) -count=1 -timeout 10m $(GOTESTFLAGS) -run 'TestSlowQuorum|TestServedWhileSlow' ./internal/zkutil/session -exhaustive

integration: ## tests on real ZooKeeper servers, by default of Debian bookworm: make integration ZK=trixie; needs Docker, a JDK with Curator, kazoo, MIT Kerberos, Prometheus, and for the examples MariaDB and Chromium
	cd integration && go build -race ./... # with all processors: -p 1 below is for building, too
	cd integration && $(TEST) -race -p 1 -timeout 30m -skip '^TestChaos' $(GOTESTFLAGS) ./...
	go test -race -timeout 10m $(GOTESTFLAGS) ./contrib/saslkrb5/...
	go run ./integration/cmd/withzk -- go test -race -timeout 10m -tags integration $(GOTESTFLAGS) ./examples/...
	go run ./integration/cmd/withzk -- go test -timeout 10m -tags integration -run '^TestZooKeeper' $(GOTESTFLAGS) ./cmd/zkr

newest: ## some of these tests on the newest ZooKeeper; needs Docker and MIT Kerberos
	ZK=trixie integration/image/build.sh
	cd integration && ZK=trixie go test -p 1 -timeout 10m $(GOTESTFLAGS) -run '^(TestAcquireAndRelease|TestSmoke|TestLeadershipRotates|TestWatchEventNeedsRead|TestWaiterThatMayNotReadTheZnodeAhead|TestReadOnlyServer|TestObserver|TestLocalSessions|TestSessionFollowsFromItsID|TestDigestIsRequired|TestKerberosIsRequired)$$' ./mutex ./election ./edges ./logins

speed: ## zktest beside a real ZooKeeper, a handover beside Curator's, without the race detector; needs Docker and a JDK with Curator
	cd integration && go test -p 1 -timeout 10m $(GOTESTFLAGS) -run '^TestSpeed' ./zktest ./election

bench: ## this library beside zk.Lock, Curator, etcd, redsync and the protocol's limit, in interleaved rounds; needs a JDK with Curator, and redis-server. make bench FLAGS='-short -cases pair'
	go run ./integration/bench $(FLAGS)

bench-smoke: ## what a lock costs, counted: requests, packets, round trips, bytes, events, allocations, each against its limit, no times; needs Go alone
	cd integration/bench && go test -v -count=1 -timeout 5m $(GOTESTFLAGS) ./meter ./load ./report ./runner ./server ./smoke

chaos: ## a nemesis against three servers and their clients: make chaos SEED=7 MINUTES=60; needs Docker and MariaDB
	cd integration && go test -race -v -count=1 -timeout 0 -run '^TestChaos$$' ./chaos -seed $(SEED) -minutes $(MINUTES)

mutants: ## plants defects in copies of the library, and tells which rung of the ladder finds each; needs all that the other tests need, and most of an hour
	integration/mutants/run.sh

model: ## the model of the lock recipe, and its broken variants; needs spin and gcc
	docs/model/check.sh

stock: ## the stock demo on an embedded ZooKeeper and SQLite; needs Go alone. FLAGS go to the demo: make stock FLAGS=-lock=false
	go run ./examples/stock $(FLAGS)

stock-zk: ## the same on a real ZooKeeper; needs Docker
	go run ./integration/cmd/withzk -- go run ./examples/stock $(FLAGS)

lint: $(LINT) ## linters and formatters, on every module
	$(LINT) run ./... ./examples/... ./integration/... ./integration/bench/... ./cmd/zkr/... ./contrib/otelzkrecipes/... ./contrib/promzkrecipes/... ./contrib/saslkrb5/...
	$(LINT) run --build-tags integration ./examples/... ./cmd/zkr/...
	$(LINT) fmt --diff ./... ./examples/... ./integration/... ./integration/bench/... ./cmd/zkr/... ./contrib/otelzkrecipes/... ./contrib/promzkrecipes/... ./contrib/saslkrb5/...

worker: ## the election demo on an embedded ZooKeeper and SQLite; needs Go alone. FLAGS go to the demo: make worker FLAGS=-stay
	go run ./examples/worker $(FLAGS)

worker-zk: ## the same on a real ZooKeeper; needs Docker
	go run ./integration/cmd/withzk -- go run ./examples/worker $(FLAGS)

$(LINT):
	GOBIN=$(CURDIR)/.bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
	mv .bin/golangci-lint $@

workflows: ## checks .github/workflows; needs Go alone
	go run github.com/rhysd/actionlint/cmd/actionlint@v1.7.12 -shellcheck= -pyflakes=

vulnerabilities: ## looks for known vulnerabilities in what the library imports; needs the Internet
	for module in $(LIBRARY); do (cd $$module && GOWORK=off go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...) || exit; done

release-check: ## what a release must satisfy: it builds elsewhere, its API is compatible with the last tag, its licences are known; needs Go alone
	integration/release/check.sh
