#!/usr/bin/env bash
# Tags a release in this clone and pushes nothing: integration/release/tag.sh v1.2.3
#
# The root module is tagged at HEAD. `go install` refuses a module whose go.mod has a replace, so
# the other modules are tagged at a commit of their own behind HEAD, which requires that version of
# the library in place of the replace. Only the tags keep that commit: the branch keeps the
# replaces, so that every build of a clone takes the library from the clone.
set -euo pipefail
version=${1-}
if ! [[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$ ]]; then
	echo "usage: $0 v1.2.3" >&2
	exit 2
fi
cd "$(dirname "$0")/../.."
root=$PWD
if [ -n "$(git status --porcelain)" ]; then
	echo "the working tree has changes that are not committed" >&2
	exit 1
fi

path=github.com/zkrecipes/zkrecipes
modules=(contrib/certmagiczkrecipes contrib/fxzkrecipes contrib/gocronzkrecipes contrib/saslkrb5 contrib/otelzkrecipes contrib/promzkrecipes cmd/zkr) # each behind those that it requires
tags=("$version" "${modules[@]/%//$version}")
for tag in "${tags[@]}"; do
	if git rev-parse -q --verify "refs/tags/$tag" >/dev/null; then
		echo "the tag $tag exists" >&2
		exit 1
	fi
done

work=$(mktemp -d)
finish() {
	local status=$?
	git -C "$root" worktree remove --force "$work/tree"
	rm -rf "$work"
	[ $status = 0 ] || git -C "$root" tag -d "${tags[@]}" 2>/dev/null || true
}
trap finish EXIT
git worktree add -q --detach "$work/tree"

# The go command fetches the new versions as it always does, but from this clone.
# shellcheck source=SCRIPTDIR/clone.sh
. "$root/integration/release/clone.sh" "$root" "$work"

git tag "$version"
for module in "${modules[@]}"; do
	cd "$work/tree/$module"
	go mod edit -json | grep -oE "\"Path\": \"$path[^\"]*\"" | cut -d'"' -f4 | sort -u | while read -r required; do
		[ "$required" = "$path/$module" ] || go mod edit -dropreplace "$required" -require "$required@$version"
	done
	go mod tidy
	git commit -qam "release: $module requires $version"
	git tag "$module/$version"
done

echo "tagged; publish with:"
echo "git push --atomic origin HEAD ${tags[*]}"
