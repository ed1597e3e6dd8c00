#!/bin/sh
# Builds a ZooKeeper image of the integration tests from Debian packages, for machines that reach no image registry.
#
#	build.sh [SUITE]
#
# SUITE is the Debian suite, and so the release of ZooKeeper: bookworm (3.8.0), trixie (3.9.3) or sid (the newest). The
# default is the environment's ZK, or bookworm.
#
# Prints the image's tag on stdout and everything else on stderr. The tag is the suite, and a hash of the files in this
# folder: an image that exists is not built again. Needs docker, root, and Debian's packages; installs mmdebstrap when it
# is missing. The mirror is that of a Debian machine, and otherwise the one that mmdebstrap
# knows. APT_MIRROR names another.
set -eu

cd "$(dirname "$0")"
suite=${1:-${ZK:-bookworm}}
. ./suite.sh
repository=zkrecipes/zookeeper
hash=$(cat build.sh suite.sh Dockerfile entrypoint.sh zoo.cfg | sha256sum | cut -c1-12)
tag="$repository:$suite-$hash"

exists() { docker image inspect "$tag" >/dev/null 2>&1; }

if exists; then
	echo "$tag"
	exit 0
fi

# Test packages run side by side and may all find the image missing: one builds, the others wait and use it.
exec 9>"${TMPDIR:-/tmp}/zkrecipes-image.lock"
flock 9
if exists; then
	echo "$tag"
	exit 0
fi

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp Dockerfile entrypoint.sh zoo.cfg "$dir"

say "making the root file system of $suite (half a minute)"
# The Java runtime's packages fail to configure unless the man page folder is there.
bootstrap --variant=minbase \
	--include=default-jre-headless,libzookeeper-java,iproute2,iptables,procps \
	--dpkgopt='path-exclude=/usr/share/man/*' \
	--dpkgopt='path-exclude=/usr/share/doc/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' \
	--essential-hook='mkdir -p "$1/usr/share/man/man1"' \
	"$suite" "$dir/rootfs.tar"

say "building $tag"
docker build -t "$tag" "$dir" >&2
echo "$tag"
