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
# The oldest and the newest go-zookeeper that the library supports; the word latest stands for the newest that is published.
ZKCONN ?= v1.0.4 latest
# How many schedules of faults and minutes of chaos a night has. NIGHT=short is the part that runs for each commit.
NIGHT ?= long
ifeq ($(NIGHT),short)
SCHEDULES ?= 300
EXHAUSTIVE ?=
NIGHT_MINUTES ?= 1
else
SCHEDULES ?= 10000
EXHAUSTIVE ?= -exhaustive
NIGHT_MINUTES ?= 20
endif
# The folders of the integration tests: edges, whose many servers need the whole machine, the rest, or all.
FOLDERS ?= all
# The folders whose tests are of the test tools.
HARNESS := ./byname ./ensemble ./faultproxy ./mutants/sample ./zkadmin
# The systems for which the library and contrib have to build, and zkr with the commands that need no Linux.
PLATFORMS ?= linux/386 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 freebsd/amd64
LIBRARY := . cmd/zkr contrib/certmagiczkrecipes contrib/fxzkrecipes contrib/gocronzkrecipes contrib/promzkrecipes contrib/saslkrb5 # contrib/otelzkrecipes needs what OpenTelemetry needs
# The modules of contrib whose tests need Go alone.
CONTRIB := ./contrib/certmagiczkrecipes/... ./contrib/fxzkrecipes/... ./contrib/gocronzkrecipes/... ./contrib/otelzkrecipes/... ./contrib/promzkrecipes/...

.PHONY: help quick test oldest zkconn platforms flaky fuzz zkr schedules integration reliability newest suites harness speed bench bench-smoke model chaos mutants sample stock stock-zk worker worker-zk picture lint workflows vulnerabilities release-check nightly

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1	/p' $(MAKEFILE_LIST)

quick: ## at every save, in 20 s: vet, and the unit tests in their short form; needs Go alone
	@# zktest first, because its tests wait. One processor for each package, because bubbles of synctest use no more.
	$(TEST) -short -vet all -cpu 1 -parallel 8 $(GOTESTFLAGS) ./recipes/zktest ./...

test: ## unit tests with the race detector, for which the explorations of every state are too large; needs Go alone
	@# Packages recipes and zktest in parts, because the race detector may crash in long processes with bubbles: golang/go issue 78156.
	$(TEST) -race -timeout 30m $(GOTESTFLAGS) $$(go list ./... ./examples/... $(CONTRIB) | grep -vE '/zkrecipes/recipes(/zktest)?$$')
	$(TEST) -race $(GOTESTFLAGS) -skip '^TestServerSurvivesChaos$$' ./recipes/zktest
	$(TEST) -race $(GOTESTFLAGS) -run '^TestServerSurvivesChaos$$' ./recipes/zktest
	for part in '^Test[A-C]' '^Test[DE]' '^(Example|Fuzz)' '^Test[F-N]' '^Test[O-R]' '^Test[S-T]' '^Test[U-Z]'; do \
		$(TEST) -race -timeout 30m $(GOTESTFLAGS) -run "$$part" ./recipes || exit; \
	done

oldest: ## builds the library, zkr and contrib, and runs the short unit tests, with another version of Go: make oldest GO_VERSION=go1.27.0; needs Go alone
	for module in $(LIBRARY); do \
		(cd $$module && GOWORK=off GOTOOLCHAIN=$(GO_VERSION) go vet ./...) || exit; \
	done
	GOWORK=off GOTOOLCHAIN=$(GO_VERSION) $(TEST) -short -parallel 8 $(GOTESTFLAGS) ./recipes/... ./internal/zkutil/... ./internal/proto

zkconn: ## the short tests of what rests on habits of zk.Conn, with other versions of go-zookeeper: make zkconn ZKCONN=v1.0.5; needs Go and the Internet
	@set -e; folder=$$(mktemp -d); trap 'rm -r "$$folder"' EXIT; export GOWORK=off; \
	versions=$$(go list -m -f '{{.Version}}' $(ZKCONN:%=github.com/go-zookeeper/zk@%)); \
	for version in $$(printf '%s\n' "$$versions" | sort -u); do \
		echo "go-zookeeper $$version"; \
		cp go.mod go.sum "$$folder"; \
		go mod edit -require="github.com/go-zookeeper/zk@$$version" "$$folder/go.mod"; \
		GOFLAGS=-mod=mod $(TEST) -short -cpu 1 -parallel 8 -modfile="$$folder/go.mod" $(GOTESTFLAGS) ./internal/zkutil/wire ./internal/zkutil/dial ./internal/zkutil/session; \
	done

platforms: ## builds the library, its tests, contrib and zkr for other systems: make platforms PLATFORMS=windows/arm64; needs Go alone
	for platform in $(PLATFORMS); do \
		echo "$$platform" && export GOOS=$${platform%/*} GOARCH=$${platform#*/} CGO_ENABLED=0 && \
		go vet ./... ./cmd/zkr/... $(CONTRIB) ./contrib/saslkrb5/... && \
		go build -o /dev/null ./cmd/zkr || exit; \
	done

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

schedules: ## SCHEDULES of faults, by default 10,000, against each lock, a tenth against once, 100,000 operations with faults against a limit, every state of trust within bounds, and slow quorums from every phase, in virtual time; needs Go alone
	$(TEST) -count=1 -timeout 60m $(GOTESTFLAGS) -run TestFaultSchedules ./recipes/mutex ./recipes/rwlock ./recipes/semaphore ./recipes/multilock -schedules $(SCHEDULES)
	$(TEST) -count=1 -timeout 60m $(GOTESTFLAGS) -run 'TestFaultSchedules|TestWrongClocks' ./recipes/once -schedules $$(($(SCHEDULES) / 10))
ifneq ($(EXHAUSTIVE),) # smaller forms are unit tests
	$(TEST) -count=1 -timeout 30m $(GOTESTFLAGS) -run 'TestAllOrNothing|TestLimitUnderFaultedOperations' ./recipes/semaphore $(EXHAUSTIVE)
	$(TEST) -count=1 -timeout 60m $(GOTESTFLAGS) -run '^(TestExclusionWithinBounds|TestExplore|TestWalks)$$' ./internal/zkutil/core ./internal/zkutil/queue $(EXHAUSTIVE)
	$(TEST) -count=1 -timeout 10m $(GOTESTFLAGS) -run 'TestSlowQuorum|TestServedWhileSlow' ./internal/zkutil/session $(EXHAUSTIVE)
endif

nightly: ## what takes too long for each commit: schedules, model, mutants, failing servers, test tools, speed, the newest servers, chaos; NIGHT=short is a part for each commit. Needs all that the other tests need
	$(MAKE) -s schedules
	integration/mutants/run.sh -check
ifneq ($(NIGHT),short)
	$(MAKE) -s model
	$(MAKE) -s reliability
	$(MAKE) -s harness
	$(MAKE) -s speed
	$(MAKE) -s newest
endif
	$(MAKE) -s chaos MINUTES=$(NIGHT_MINUTES)

integration: ## tests on real ZooKeeper servers, by default of Debian bookworm: make integration ZK=trixie; needs Docker, a JDK with Curator, kazoo, MIT Kerberos, Prometheus, and for the examples MariaDB and Chromium
	cd integration && go build -race ./... # with all processors: -p 1 below is for building, too
ifneq ($(FOLDERS),rest)
	cd integration && $(TEST) -race -timeout 30m $(GOTESTFLAGS) ./edges
endif
ifneq ($(FOLDERS),edges)
	cd integration && $(TEST) -race -p 1 -timeout 30m -skip '^TestChaos' $(GOTESTFLAGS) $$(go list ./... | grep -vE '/(reliability|edges)$$' | grep -vE "/integration/($$(echo $(HARNESS:./%=%) | tr ' ' '|'))$$")
	go test -race -timeout 10m $(GOTESTFLAGS) ./contrib/saslkrb5/...
	go run ./integration/cmd/withzk -- go run ./examples/cmd/withmariadb -- go test -race -timeout 10m -tags integration $(GOTESTFLAGS) ./examples/...
	go run ./integration/cmd/withzk -- go test -timeout 10m -tags integration -run '^TestZooKeeper' $(GOTESTFLAGS) ./cmd/zkr
endif

reliability: ## what becomes of leases when servers stop, hang, restart or change their limits; needs Docker
	cd integration && $(TEST) -race -timeout 30m $(GOTESTFLAGS) ./reliability

harness: ## the tests of the tools that the other tests use: servers, proxies, a name server; needs Docker
	cd integration && $(TEST) -race -p 1 -timeout 10m $(GOTESTFLAGS) $(HARNESS)

newest: ## some of these tests on the newest ZooKeeper; needs Docker and MIT Kerberos
	ZK=trixie integration/image/build.sh
	cd integration && ZK=trixie go test -p 1 -timeout 10m $(GOTESTFLAGS) -run '^(TestAcquireAndRelease|TestSmoke|TestLeadershipRotates|TestWatchEventNeedsRead|TestWaiterThatMayNotReadTheZnodeAhead|TestReadOnlyServer|TestObserver|TestLocalSessions|TestSessionFollowsFromItsID|TestDigestIsRequired|TestKerberosIsRequired)$$' ./mutex ./election ./edges ./logins

suites: ## the test suites of go-zookeeper and kazoo against zktest, except the tests that are out by design; needs python3-kazoo, -pytest, -mock and -objgraph
	go run ./integration/cmd/suites

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

sample: ## how many of 200 defects, drawn from a foreign tool's list and from omissions, the unit tests notice: make sample SEED=7; needs the Internet, and hours
	go run ./integration/mutants/sample -seed $(SEED) $(FLAGS)

model: ## the model of the lock recipe, and its broken variants; needs spin and gcc
	docs/model/check.sh

stock: ## the stock demo on an embedded ZooKeeper and SQLite; needs Go alone. FLAGS go to the demo: make stock FLAGS=-lock=false
	go run ./examples/stock $(FLAGS)

stock-zk: ## the same on a real ZooKeeper; needs Docker
	go run ./integration/cmd/withzk -- go run ./examples/stock $(FLAGS)

picture: ## the animated picture of the README, from its recording; needs Debian's termtosvg. To record it: go test ./cmd/zkr -run TestPictureShowsTheCommands -record
	termtosvg render docs/recording/lock.cast docs/recording/lock.svg -t window_frame
	sed -i 's/ *$$//' docs/recording/lock.svg

lint: $(LINT) ## linters and formatters, on every module
	$(LINT) run ./... ./examples/... ./integration/... ./integration/bench/... ./cmd/zkr/... $(CONTRIB) ./contrib/saslkrb5/...
	$(LINT) run --build-tags integration ./examples/... ./cmd/zkr/...
	$(LINT) fmt --diff ./... ./examples/... ./integration/... ./integration/bench/... ./cmd/zkr/... $(CONTRIB) ./contrib/saslkrb5/...

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

release-check: ## what a release must satisfy: its API is compatible with the last tag, its licences are known; needs Go alone
	integration/release/check.sh
