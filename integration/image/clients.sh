#!/bin/sh
# Fetches the Curator and the kazoo of a Debian suite, for tests beside the ZooKeeper of the same suite.
#
#	clients.sh [SUITE]
#
# SUITE is as for build.sh. Prints a folder on stdout and everything else on stderr: its java has the libraries of Curator, its
# python kazoo, without what they import. A folder that exists is not made again. Needs Debian's packages, and root.
set -eu

cd "$(dirname "$0")"
suite=${1:-${ZK:-bookworm}}
. ./suite.sh
target=${XDG_CACHE_HOME:-$HOME/.cache}/zkrecipes/clients-$suite-$(cat clients.sh suite.sh | sha256sum | cut -c1-12)

exec 9>"${TMPDIR:-/tmp}/zkrecipes-clients.lock"
flock 9 # as in build.sh
if [ ! -d "$target" ]; then
	dir=$(mktemp -d)
	trap 'rm -rf "$dir"' EXIT
	say "fetching Curator and kazoo of $suite (a minute)"
	bootstrap --variant=extract --include=libcurator-recipes-java,libslf4j-java,python3-kazoo "$suite" "$dir/root"
	mkdir -p "$dir/clients/java" "$dir/clients/python"
	for jar in curator-client curator-framework curator-recipes zookeeper zookeeper-jute guava slf4j-api slf4j-nop; do
		cp -L "$dir/root/usr/share/java/$jar.jar" "$dir/clients/java/"
	done
	basename "$(readlink "$dir/root/usr/share/java/curator-recipes.jar")" .jar | sed 's/.*-//' >"$dir/clients/java/version"
	cp -R "$dir/root/usr/lib/python3/dist-packages/kazoo" "$dir/clients/python/"
	mkdir -p "$(dirname "$target")"
	rm -rf "$target.part"
	cp -R "$dir/clients" "$target.part"
	mv "$target.part" "$target"
fi
echo "$target"
