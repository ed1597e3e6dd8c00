#!/bin/sh
# Builds the ZooKeeper image of the integration tests from Debian packages, for machines that reach no image registry.
#
# Prints the image's tag on stdout and everything else on stderr. The tag is a hash of the files in this folder: an image
# that exists is not built again. Needs docker, root, and Debian's packages; installs mmdebstrap when it is missing.
# The package sources are the machine's own; APT_SOURCES names another sources file.
set -eu

cd "$(dirname "$0")"
repository=zkrecipes/zookeeper
hash=$(cat build.sh Dockerfile entrypoint.sh zoo.cfg | sha256sum | cut -c1-12)
tag="$repository:$hash"

exists() { docker image inspect "$tag" >/dev/null 2>&1; }
say() { echo "image: $*" >&2; }

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

if ! command -v mmdebstrap >/dev/null; then
	say "installing mmdebstrap"
	# Fails while another apt-get updates the lists, which will do as well.
	apt-get update >&2 || say "package lists not updated"
	DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends mmdebstrap >&2
fi

sources=${APT_SOURCES:-}
for file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
	if [ -z "$sources" ] && [ -s "$file" ]; then sources=$file; fi
done

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp Dockerfile entrypoint.sh zoo.cfg "$dir"

say "making the root file system (half a minute)"
# The Java runtime's packages fail to configure unless the man page folder is there.
mmdebstrap --variant=minbase \
	--include=openjdk-17-jre-headless,libzookeeper-java,iproute2,iptables,procps \
	--dpkgopt='path-exclude=/usr/share/man/*' \
	--dpkgopt='path-exclude=/usr/share/doc/*' \
	--dpkgopt='path-exclude=/usr/share/locale/*' \
	--aptopt='APT::Install-Recommends "false"' \
	--essential-hook='mkdir -p "$1/usr/share/man/man1"' \
	bookworm "$dir/rootfs.tar" ${sources:+"$sources"} >&2

say "building $tag"
docker build -t "$tag" "$dir" >&2
echo "$tag"
