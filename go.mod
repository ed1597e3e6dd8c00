module github.com/zkrecipes/zkrecipes

go 1.26.0

require (
	github.com/cenkalti/backoff/v5 v5.0.3
	github.com/go-zookeeper/zk v1.0.4
)
