# Sourced with the folders of a clone and of a cache. Has the go command fetch this project's modules
# from the clone, as if the tags of the clone were published, and all other modules as usual.
export GOWORK=off GOFLAGS=-modcacherw GOPRIVATE=github.com/zkrecipes
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0="url.file://$1.insteadOf" GIT_CONFIG_VALUE_0=https://github.com/zkrecipes/zkrecipes
GOPROXY="file://$(go env GOMODCACHE)/cache/download,$(go env GOPROXY)" # what is downloaded already first
export GOPROXY GOMODCACHE=$2/modules # of its own: the tags may be rehearsed again with other contents
