#!/usr/bin/env bash
# Checks what a release must satisfy: its API is compatible with that of the last tag, the licence of every module that
# users get is known, and a rehearsed release can be installed.
set -euo pipefail
cd "$(dirname "$0")/../.."
export GOWORK=off

echo "licences"
known='MIT License|Permission is hereby granted, free of charge|Apache License|Redistribution and use in source and binary forms|Mozilla Public License|The Unlicense|CC0 1.0'
for module in . cmd/zkr contrib/*/; do
	(
		cd "$module"
		# The modules whose packages are compiled in, not those of the tests alone.
		go list -deps -f '{{with .Module}}{{if not .Main}}{{.Path}} {{.Dir}}{{end}}{{end}}' ./... | sort -u | while read -r path dir; do
			case $path in github.com/zkrecipes/*) continue ;; esac
			if ! grep -qsE "$known" "$dir"/LICEN[CS]E* "$dir"/COPYING*; then
				echo "unknown licence: $path" >&2
				exit 1
			fi
		done
	)
done

echo "rehearsal of a release"
integration/release/rehearse.sh

last=$(git tag --list 'v*' --sort=-version:refname | head -n 1)
if [ -z "$last" ]; then
	echo "API: there is no tag to compare with"
	exit 0
fi
echo "API: compared with $last"
old=$(mktemp -d)
trap 'git worktree remove --force "$old"' EXIT
git worktree add -q --detach "$old" "$last"
apidiff="go run golang.org/x/exp/cmd/apidiff@v0.0.0-20261113113407-e3970619a1a4"
(cd "$old" && $apidiff -m -w "$old/api" github.com/zkrecipes/zkrecipes)
$apidiff -m -incompatible "$old/api" github.com/zkrecipes/zkrecipes | { ! grep .; }
